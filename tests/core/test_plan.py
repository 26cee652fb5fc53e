"""The planner: one table of situations, and convergence."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.manifests import engine as manifests
from penstock.core.observed import Observed, ObservedDeployment, ObservedPod
from penstock.core.plan import plan
from penstock.core.revision import revision_of
from penstock.core.service import ScalingSpec, ServiceSpec
from penstock.core.status import ScalingReport, conditions, render
from penstock.core.strategic_merge import covers, merge

SPEC = ServiceSpec(
    namespace="default",
    name="chat",
    uid="u1",
    generation=1,
    created_at="2026-01-01T00:00:00Z",
    served_name="chat",
    model_uri="pvc://models/tiny",
    max_model_len=1024,
    max_num_seqs=32,
    max_num_batched_tokens=512,
    dtype="auto",
    seed=0,
    kv_memory_bytes=None,
    memory_utilization=0.9,
    block_size=16,
    prefix_caching=True,
    cpu="1",
    memory="1Gi",
    accelerator=None,
    scaling=ScalingSpec("Active", 1, 3, 0.75, 4, 60.0),
    external_replicas=1,
    drain_s=30,
)
REVISION = revision_of(SPEC)
PASSED = '{"ok": true, "architecture": "Q", "weights_bytes": 1, "kv_capacity_tokens": 9}'
FORBIDDEN = ("PodForbidden", "not here")
REFUSED = '{"ok": false, "reason": "ModelNotFound", "message": "no model; set spec.model.uri"}'


def preflight(
    said: str = PASSED, phase: str = "Succeeded", revision: str = REVISION
) -> ObservedPod:
    return ObservedPod(
        f"p-{revision}", "pu", revision, "preflight", "", False, False, phase, None, said
    )


def pod(name: str, revision: str = REVISION, *, ready: bool = True) -> ObservedPod:
    return ObservedPod(
        name, name, revision, "serve", "127.0.0.9", ready, False, "Running", None, ""
    )


def deployment(
    revision: str = REVISION, replicas: int = 1, spec: ServiceSpec = SPEC
) -> ObservedDeployment:
    body = manifests.deployment(spec, revision, "image")
    return ObservedDeployment(
        f"chat-{revision}", f"d{revision}", revision, replicas, 0, False, body
    )


def actions(spec: ServiceSpec, observed: Observed) -> dict[str, Any]:
    made = plan(spec, observed, "image")
    return {
        "create": [b["metadata"]["name"] for b in made.create],
        "apply": [b["metadata"]["name"] for b in made.apply],
        "scale": [(s.deployment, s.replicas) for s in made.scale],
        "delete": [d.name for d in made.delete],
        "stable": made.stable,
        "candidate": made.candidate,
    }


NOTHING: dict[str, Any] = {"create": [], "apply": [], "scale": [], "delete": []}
NAME = f"chat-{REVISION}"


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            Observed(),
            {"create": [f"{NAME}-preflight"], "stable": None, "candidate": REVISION},
            id="the-model-is-looked-at-first",
        ),
        pytest.param(
            Observed(pods=(preflight("", "Running"),)), {"stable": None}, id="and-waited-for"
        ),
        pytest.param(
            Observed(pods=(preflight(REFUSED, "Failed"),)),
            {"stable": None},
            id="a-refusal-ends-here",
        ),
        pytest.param(
            Observed(pods=(preflight(),)), {"apply": [NAME]}, id="a-pass-makes-the-deployment"
        ),
        pytest.param(
            Observed((deployment(),), (preflight(), pod("a", ready=False))),
            {"stable": None, "candidate": REVISION},
            id="traffic-waits-for-a-ready-pod",
        ),
        pytest.param(
            Observed((deployment(),), (preflight(), pod("a"))),
            {"stable": REVISION, "candidate": None},
            id="and-comes-with-it",
        ),
        pytest.param(
            Observed((deployment(replicas=7),), (pod("a"),), REVISION),
            {"scale": [(NAME, 3)], "stable": REVISION},
            id="bounds-hold",
        ),
        pytest.param(
            Observed((deployment(), deployment("old", 2)), (pod("a"), pod("b", "old")), "old"),
            {"scale": [(NAME, 2)], "stable": "old", "candidate": REVISION},
            id="a-new-revision-comes-up-as-large-as-the-old",
        ),
        pytest.param(
            Observed(
                (deployment(replicas=2), deployment("old", 2)),
                (pod("a"), pod("b"), pod("c", "old")),
                "old",
            ),
            {"stable": REVISION, "candidate": None},
            id="traffic-switches-before-anything-is-deleted",
        ),
        pytest.param(
            Observed(
                (deployment(), deployment("old")), (pod("a"), preflight(revision="old")), REVISION
            ),
            {"delete": ["chat-old", "p-old"], "stable": REVISION},
            id="then-the-old-one-goes",
        ),
        pytest.param(
            Observed(name_taken_by="other"), {"stable": None}, id="a-taken-name-starts-nothing"
        ),
        pytest.param(
            Observed(pods=(preflight(),), refusal=("PodTemplateRejected", "bad")),
            {"stable": None},
            id="no-retry-of-a-refusal",
        ),
        pytest.param(
            Observed(
                (deployment("old", 7),), (pod("b", "old"),), "old", refusal=("PodForbidden", "no")
            ),
            {"scale": [("chat-old", 3)], "stable": "old", "candidate": REVISION},
            id="what-serves-is-scaled-on",
        ),
    ],
)
def test_the_next_writes(observed: Observed, expected: dict[str, Any]) -> None:
    made = actions(SPEC, observed)
    assert {key: made[key] for key in {**NOTHING, **expected}} == {**NOTHING, **expected}


def test_external_replicas_are_set_and_shadow_leaves_them() -> None:
    seen = Observed((deployment(replicas=2),), (pod("a"),), REVISION)
    external = replace(SPEC, scaling=replace(SPEC.scaling, mode="External"), external_replicas=0)
    assert actions(external, seen)["scale"] == [(NAME, 0)]
    shadow = replace(SPEC, scaling=replace(SPEC.scaling, mode="Shadow", max_replicas=1))
    assert actions(shadow, seen)["scale"] == []


@pytest.mark.parametrize(
    ("change", "is_new"),
    [
        ({"generation": 2}, False),
        ({"scaling": replace(SPEC.scaling, max_replicas=9)}, False),
        ({"external_replicas": 4}, False),
        ({"model_uri": "pvc://models/other"}, True),
        ({"memory": "2Gi"}, True),
        ({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, True),
        ({"drain_s": 31}, True),
    ],
)
def test_only_what_shapes_a_pod_makes_a_revision(change: dict[str, Any], is_new: bool) -> None:
    assert (revision_of(replace(SPEC, **change)) != REVISION) is is_new


def test_a_deployment_never_states_its_replicas() -> None:
    assert "replicas" not in manifests.deployment(SPEC, REVISION, "image")["spec"]


@pytest.mark.parametrize(
    ("observed", "ready"),
    [
        (Observed(), ("False", "PreflightPending")),
        (Observed(pods=(preflight(REFUSED, "Failed"),)), ("False", "ModelNotFound")),
        (Observed((deployment(),), (preflight(), pod("a", ready=False))), ("False", "Progressing")),
        (Observed((deployment(),), (preflight(), pod("a")), REVISION), ("True", "Ready")),
        (Observed(name_taken_by="older"), ("False", "ServedNameTaken")),
        (Observed(refusal=FORBIDDEN), ("False", "PodForbidden")),
        (Observed(pods=(preflight(),), refusal=FORBIDDEN), ("False", "PodForbidden")),
        (
            Observed((replace(deployment(), trouble=("FailedCreate", "a quota")),), (preflight(),)),
            ("False", "FailedCreate"),
        ),
        (
            Observed(
                (replace(deployment(replicas=2), trouble=("FailedCreate", "a quota")),),
                (preflight(), pod("a")),
                REVISION,
            ),
            ("True", "Ready"),
        ),
    ],
)
def test_ready_says_the_first_cause(observed: Observed, ready: tuple[str, str]) -> None:
    tree = {c.type: c for c in conditions(SPEC, observed, plan(SPEC, observed, "image"), None)}
    assert (tree["Ready"].status, tree["Ready"].reason) == ready


@pytest.mark.parametrize("valid", [True, False])
def test_a_new_leader_reads_the_last_decision_from_the_status(valid: bool) -> None:
    """Without it each new leader would say that there is no decision, and soon that there is."""
    code = "Active" if valid else "MetricsMissing"
    report = ScalingReport(2, "because", code, valid, "2026-01-01T00:00:00Z", (("want", 2, "n"),))
    observed = Observed((deployment(),), (preflight(), pod("a")), REVISION)
    planned = plan(SPEC, observed, "image")
    status = render(SPEC, observed, planned, report, {}, "2026-01-01T00:00:09Z")
    assert ScalingReport.of(status) == report
    assert ScalingReport.of({}) is None


def test_a_strategic_merge_joins_lists_by_their_keys() -> None:
    base = {"spec": {"containers": [{"name": "engine", "env": [{"name": "A", "value": "1"}]}]}}
    patch = {
        "spec": {
            "nodeSelector": {"x": "y"},
            "containers": [
                {"name": "engine", "env": [{"name": "B", "value": "2"}]},
                {"name": "side", "image": "i"},
            ],
        }
    }
    merged = merge(base, patch)
    assert [c["name"] for c in merged["spec"]["containers"]] == ["engine", "side"]
    assert [e["name"] for e in merged["spec"]["containers"][0]["env"]] == ["A", "B"]
    assert base["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


def test_null_and_patch_directives_remove() -> None:
    assert merge({"a": 1, "b": 2}, {"a": None}) == {"b": 2}
    base = {"volumes": [{"name": "tmp"}, {"name": "model"}]}
    removed = merge(base, {"volumes": [{"name": "tmp", "$patch": "delete"}]})
    assert removed == {"volumes": [{"name": "model"}]}


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"cpu": "1"}, {"cpu": "1000m"}, True),
        ({"memory": "1Gi"}, {"memory": "1024Mi"}, True),
        ({}, {"readOnly": False}, True),
        ([{"n": 1, "x": 2}], [{"n": 1}], True),
        ([{"n": 1}, {"n": 2}], [{"n": 1}], False),
        (None, {"a": 1}, False),
    ],
)
def test_live_objects_cover_what_was_wanted(live: Any, wanted: Any, expected: bool) -> None:
    assert covers(live, wanted) is expected
