"""The planner: one table of situations, and convergence."""

from dataclasses import replace
from typing import Any

import pytest
from preflight_messages import PASSED
from service_spec import SMALL, service_spec

from penstock.api.status import RolloutStatus
from penstock.core.formats.timestamps import timestamp
from penstock.core.manifests import engine as manifests
from penstock.core.observed.children import Observed, ObservedDeployment, ObservedJob, ObservedPod
from penstock.core.observed.rollout_state import Phase, Rejection, RolloutState
from penstock.core.reconcile.conditions import conditions, forbidden, invalid
from penstock.core.reconcile.plan import PREFLIGHT_RETRY_S, plan
from penstock.core.reconcile.status import render, traffic_of
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.history import Revision
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import RolloutSpec, Strategy
from penstock.core.spec.service import ServiceSpec

SPEC = service_spec(
    uid="u1",
    created_at="2026-01-01T00:00:00Z",
    model_uri="pvc://models/tiny",
    max_model_len=1024,
    scaling=replace(SMALL.scaling, max_replicas=3),
)
REVISION = revision_of(SPEC)
NOW_S = 1_800_000_000.0
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
    body = manifests.deployment(spec, revision, manifests.own_pods(spec, revision, "image"))
    return ObservedDeployment(
        f"chat-{revision}", f"d{revision}", revision, replicas, 0, False, body
    )


KNOWN = (
    Revision(
        f"chat-{REVISION}", "r", REVISION, 2, {}, manifests.own_pods(SPEC, REVISION, "image"), True
    ),
    Revision("chat-old", "o", "old", 1, {}),
)


def look(
    *children: ObservedDeployment | ObservedPod,
    phase: Phase = "Starting",
    strategy: Strategy = "Recreate",
    stable: str | None = None,
    told: str | None = None,
    **rest: Any,
) -> Observed:
    """Observed state in a phase. told: the revision that gateways route to; the stable one if absent."""
    calm = phase in ("Stable", "Rejected", "Draining")
    revision = None if calm else REVISION
    replicas = max((c.replicas for c in children if isinstance(c, ObservedDeployment)), default=1)
    state = RolloutState(strategy, phase, NOW_S, "because", stable, revision, replicas)
    told = told or stable
    return Observed(
        deployments=tuple(c for c in children if isinstance(c, ObservedDeployment)),
        pods=tuple(c for c in children if isinstance(c, ObservedPod)),
        history=KNOWN,
        rollout=state,
        traffic=(Share(Side(told), 100),) if told else (),
        **rest,
    )


def actions(spec: ServiceSpec, observed: Observed) -> dict[str, Any]:
    made = plan(spec, observed, "image", NOW_S + 1)
    return {
        "create": [b["metadata"]["name"] for b in made.create],
        "apply": [b["metadata"]["name"] for b in made.apply],
        "scale": [(s.deployment, s.replicas) for s in made.scale],
        "delete": [d.name for d in made.delete],
        "phase": made.rollout.phase,
        "stable": made.rollout.stable,
        "shares": [(s.side.revision, s.weight) for s in made.shares],
    }


NOTHING: dict[str, Any] = {"create": [], "apply": [], "scale": [], "delete": []}
NAME = f"chat-{REVISION}"


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            Observed(),
            {"phase": "Starting", "shares": []},
            id="a-phase-is-written-down-before-anything-is-done",
        ),
        pytest.param(
            replace(look(), history=()),
            {"apply": [NAME], "create": [f"{NAME}-preflight"]},
            id="the-revision-is-remembered-and-the-model-looked-at",
        ),
        pytest.param(look(preflight("", "Running")), {}, id="and-waited-for"),
        pytest.param(
            look(preflight(REFUSED, "Failed")), {"phase": "Starting"}, id="a-refusal-ends-here"
        ),
        pytest.param(look(preflight()), {"apply": [NAME]}, id="a-pass-makes-the-deployment"),
        pytest.param(
            look(deployment(), preflight(), pod("a", ready=False)),
            {"phase": "Starting", "shares": []},
            id="traffic-waits-for-a-ready-pod",
        ),
        pytest.param(
            look(deployment(), preflight(), pod("a")),
            {"phase": "Stable", "stable": REVISION, "shares": [(REVISION, 100)]},
            id="and-comes-with-it",
        ),
        pytest.param(
            look(deployment(replicas=7), pod("a"), phase="Stable", stable=REVISION),
            {"scale": [(NAME, 3)], "apply": ["chat-engines"]},
            id="bounds-hold",
        ),
        pytest.param(
            look(deployment("old", 2), pod("b", "old"), phase="Stable", stable="old"),
            {"phase": "Replacing", "shares": [("old", 100)]},
            id="another-revision-is-another-phase-first",
        ),
        pytest.param(
            look(
                deployment(), deployment("old"), pod("a"), preflight(revision="old"),
                phase="Stable", stable=REVISION,
            ),
            {"delete": ["chat-old", "p-old"]},
            id="what-has-no-traffic-goes",
        ),
        pytest.param(
            look(
                deployment(), deployment("old"), pod("a"),
                phase="Stable", stable=REVISION, told="old",
            ),
            {"delete": [], "shares": [(REVISION, 100)]},
            id="but-only-once-gateways-were-told",
        ),
        pytest.param(look(name_taken_by="other"), {}, id="a-taken-name-starts-nothing"),
        pytest.param(
            look(preflight(), refusals={REVISION: ("PodTemplateRejected", "bad")}),
            {},
            id="no-retry-of-a-refusal",
        ),
        pytest.param(
            look(preflight(), refusals={"old": ("PodTemplateRejected", "bad")}),
            {"apply": [NAME]},
            id="a-refusal-stops-no-other-revision",
        ),
        pytest.param(
            look(
                deployment("old", 7), pod("b", "old"), phase="Starting", strategy="BlueGreen",
                stable="old", refusals={REVISION: ("PodForbidden", "no")},
            ),
            {
                "scale": [("chat-old", 3)], "stable": "old", "shares": [("old", 100)],
                "apply": ["chat-engines"],
            },
            id="what-serves-is-scaled-on",
        ),
    ],
)  # fmt: skip
def test_the_next_writes(observed: Observed, expected: dict[str, Any]) -> None:
    made = actions(SPEC, observed)
    assert {key: made[key] for key in {**NOTHING, **expected}} == {**NOTHING, **expected}


def test_external_replicas_are_set_and_shadow_leaves_them() -> None:
    seen = look(deployment(replicas=2), pod("a"), phase="Stable", stable=REVISION)
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
        ({"rollout": RolloutSpec(strategy="Canary")}, False),
        ({"model_uri": "pvc://models/other"}, True),
        ({"memory": "2Gi"}, True),
        ({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, True),
        ({"drain_s": 31}, True),
    ],
)
def test_only_what_shapes_a_pod_makes_a_revision(change: dict[str, Any], is_new: bool) -> None:
    assert (revision_of(replace(SPEC, **change)) != REVISION) is is_new


def test_a_deployment_never_states_its_replicas() -> None:
    pods = manifests.own_pods(SPEC, REVISION, "image")
    assert "replicas" not in manifests.deployment(SPEC, REVISION, pods)["spec"]


SERVING = look(deployment(), preflight(), pod("a"), phase="Stable", stable=REVISION)
REJECTED = Rejection("bad", "too slow", "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("observed", "ready", "stalled"),
    [
        (look(), ("False", "PreflightPending"), False),
        (look(preflight(REFUSED, "Failed")), ("False", "ModelNotFound"), True),
        (look(deployment(), preflight(), pod("a", ready=False)), ("False", "Progressing"), False),
        (SERVING, ("True", "Ready"), False),
        (look(name_taken_by="older"), ("False", "ServedNameTaken"), True),
        (look(refusals={REVISION: FORBIDDEN}), ("False", "PodForbidden"), True),
        (look(preflight(), refusals={REVISION: FORBIDDEN}), ("False", "PodForbidden"), True),
        (
            look(replace(deployment(), trouble=("FailedCreate", "a quota")), preflight()),
            ("False", "FailedCreate"),
            False,
        ),
        (
            replace(
                SERVING,
                deployments=(replace(deployment(replicas=2), trouble=("FailedCreate", "a quota")),),
            ),
            ("True", "Ready"),
            False,
        ),
    ],
)
def test_ready_says_the_first_cause(
    observed: Observed, ready: tuple[str, str], stalled: bool
) -> None:
    planned = plan(SPEC, observed, "image", NOW_S + 1)
    tree = {c.type: c for c in conditions(SPEC, observed, planned, None)}
    assert (tree["Ready"].status, tree["Ready"].reason) == ready
    assert (tree["Stalled"].status == "True") is stalled


def test_a_rejected_revision_leaves_the_service_as_it_was_and_says_so() -> None:
    """Flux and Argo CD see a failure, clients an answer."""
    spec = replace(SPEC, seed=1)
    state = RolloutState(
        "Canary", "Rejected", NOW_S, "gone", REVISION, None, 1,
        rejected=replace(REJECTED, revision=revision_of(spec)),
    )  # fmt: skip
    observed = replace(SERVING, rollout=state, stable_spec=SPEC)
    planned = plan(spec, observed, "image", NOW_S + 1)
    assert planned.is_empty
    tree = {c.type: c for c in conditions(spec, observed, planned, None)}
    assert tree["TrafficAvailable"].status == "True"
    assert [(tree[t].status, tree[t].reason) for t in ("RolledOut", "Stalled", "Ready")] == [
        ("False", "Rejected"),
        ("True", "Rejected"),
        ("False", "Rejected"),
    ]
    assert "too slow" in tree["Ready"].message


@pytest.mark.parametrize("phase", ["Draining", "Discarding"])
def test_an_edit_at_the_end_of_a_rollout_says_neither_ready_nor_stalled(phase: Phase) -> None:
    """The status is of the new spec, and the revision that serves is not."""
    spec = replace(SPEC, generation=2, seed=1)
    observed = look(deployment(), preflight(), pod("a"), stable=REVISION)
    rejected = None if phase == "Draining" else replace(REJECTED, revision="b" * 8)
    state = RolloutState(
        "Canary", phase, NOW_S, "over", REVISION, rejected and "b" * 8, 1, rejected=rejected
    )
    planned = plan(spec, replace(observed, rollout=state), "image", NOW_S + 1)
    assert planned.rollout.is_calm
    tree = {c.type: c for c in conditions(spec, observed, planned, None)}
    assert {t: (tree[t].status, tree[t].reason) for t in ("RolledOut", "Stalled", "Ready")} == {
        "RolledOut": ("False", "RevisionPending"),
        "Stalled": ("False", "Progressing"),
        "Ready": ("False", "RevisionPending"),
    }
    assert revision_of(spec) in tree["Ready"].message


def test_a_canary_that_the_spec_has_left_stalls_nothing() -> None:
    spec = replace(SPEC, seed=1)
    observed = look(
        deployment("old"), pod("b", "old"), deployment(), preflight(REFUSED, "Failed"),
        phase="Discarding", strategy="Canary", stable="old",
    )  # fmt: skip
    planned = plan(spec, observed, "image", NOW_S + 1)
    tree = {c.type: c for c in conditions(spec, observed, planned, None)}
    assert (planned.rollout.phase, tree["ModelReady"].status) == ("Discarding", "False")
    assert (tree["Stalled"].status, tree["Ready"].status) == ("False", "False")


def test_no_replicas_by_the_spec_are_ready_and_answer_nobody() -> None:
    spec = replace(SPEC, scaling=replace(SPEC.scaling, mode="External"), external_replicas=0)
    observed = look(deployment(replicas=0), preflight(), phase="Stable", stable=REVISION)
    tree = {
        c.type: c
        for c in conditions(spec, observed, plan(spec, observed, "image", NOW_S + 1), None)
    }
    assert {t: (tree[t].status, tree[t].reason) for t in ("WorkloadReady", "TrafficAvailable")} == {
        "WorkloadReady": ("True", "ScaledToZero"),
        "TrafficAvailable": ("False", "ScaledToZero"),
    }
    assert (tree["Ready"].status, tree["Ready"].reason) == ("True", "ScaledToZero")
    taken = replace(observed, name_taken_by="older")
    ready = conditions(spec, taken, plan(spec, taken, "image", NOW_S + 1), None)[-1]
    assert (ready.status, ready.reason) == ("False", "ServedNameTaken")


def test_a_forbidden_pod_of_a_file_model_names_the_way_out() -> None:
    told = [forbidden(replace(SPEC, model_uri=uri), "no")[1] for uri in ("pvc://m", "file:///m")]
    assert ["hostPath" in text for text in told] == [False, True]
    assert forbidden(SPEC, "no")[0] == "PodForbidden"


def test_a_spec_that_cannot_be_read_waits_for_another() -> None:
    said = {(c.type, c.status, c.reason, c.message) for c in invalid("spec.x: no")}
    assert said == {
        ("SpecValid", "False", "InvalidSpec", "spec.x: no"),
        ("Stalled", "True", "InvalidSpec", "spec.x: no"),
        ("Ready", "False", "InvalidSpec", "spec.x: no"),
    }


def test_a_preflight_that_its_node_gave_up_is_made_anew_but_not_at_once() -> None:
    """A node that admits no pod would be sent one after the other."""
    made_at = timestamp(NOW_S)
    lost = replace(preflight("", "Failed"), lost="Evicted: low on memory", created_at=made_at)
    observed = look(lost)
    early = plan(SPEC, observed, "image", NOW_S + 1)
    assert (early.is_empty, early.rollout.phase) == (True, "Starting")
    assert early.wake_s == PREFLIGHT_RETRY_S - 1
    tree = {c.type: c for c in conditions(SPEC, observed, early, None)}
    assert (tree["ModelReady"].status, tree["ModelReady"].reason) == ("Unknown", "PreflightLost")
    assert "low on memory" in tree["ModelReady"].message
    assert tree["Stalled"].status == "False"

    due = plan(SPEC, observed, "image", NOW_S + PREFLIGHT_RETRY_S)
    assert [deletion.name for deletion in due.delete] == [lost.name]
    going = look(replace(lost, is_ending=True))
    assert [b["kind"] for b in plan(SPEC, going, "image", NOW_S + 20).create] == ["Pod"]


def test_a_later_revision_is_not_rejected_for_a_node() -> None:
    lost = replace(preflight("", "Failed"), lost="Evicted", created_at=timestamp(NOW_S))
    observed = look(
        deployment("old"), pod("b", "old"), lost, strategy="BlueGreen", stable="old"
    )  # fmt: skip
    assert plan(SPEC, observed, "image", NOW_S + 30).rollout.phase == "Starting"


@pytest.mark.parametrize(("of", "phase"), [(REVISION, "Discarding"), ("old", "Starting")])
def test_a_refusal_is_of_the_revision_whose_object_was_refused(of: str, phase: Phase) -> None:
    observed = look(
        deployment("old"), pod("b", "old"), strategy="BlueGreen", stable="old",
        refusals={of: ("PodTemplateRejected", "bad")},
    )  # fmt: skip
    assert plan(SPEC, observed, "image", NOW_S + 1).rollout.phase == phase


@pytest.mark.parametrize("valid", [True, False])
def test_a_new_leader_reads_the_last_decision_from_the_status(valid: bool) -> None:
    """The status is unchanged; otherwise each new leader would write it twice."""
    code = "Active" if valid else "MetricsMissing"
    report = ScalingReport(2, "because", code, valid, "2026-01-01T00:00:00Z", (("want", 2, "n"),))
    planned = plan(SPEC, SERVING, "image", NOW_S)
    status = render(SPEC, SERVING, planned, report, {}, "2026-01-01T00:00:09Z")
    assert ScalingReport.of(status) == report
    assert ScalingReport.of({}) is None
    assert RolloutState.of(status, 0.0) == SERVING.rollout
    assert traffic_of(status) == SERVING.traffic


@pytest.mark.parametrize(("state", "status"), [("Unreadable", "False"), ("Passing", "True")])
def test_metrics_of_a_canary_are_told_until_the_next_rollout(state: str, status: str) -> None:
    metric = {"name": "m", "kind": "Metric", "state": state, "message": "change the query"}
    planned = plan(SPEC, SERVING, "image", NOW_S)
    told = render(SPEC, SERVING, planned, None, {}, "2026-01-01T00:00:09Z", [], [metric])
    [readable] = [c for c in told["conditions"] if c["type"] == "MetricsReadable"]
    assert readable["status"] == status
    assert ("m: change the query" in readable["message"]) == (status == "False")
    again = render(SPEC, SERVING, planned, None, told, "2026-01-01T00:00:19Z")
    assert again["rollout"]["gates"] == [metric]
    assert RolloutStatus.model_validate(again["rollout"]).gates[0].name == "m"


def test_an_evaluation_is_told_with_its_report() -> None:
    assert SERVING.rollout is not None
    observed = replace(
        SERVING,
        rollout=replace(SERVING.rollout, strategy="Canary", phase="Judging", revision="b" * 8),
        jobs=(ObservedJob("chat-b-evaluation", "u", "b" * 8, "Failed", "deadline exceeded"),),
    )
    planned = plan(SPEC, observed, "image", NOW_S)
    told = render(SPEC, observed, planned, None, {}, "2026-01-01T00:00:09Z")
    assert told["rollout"]["gates"] == [
        {
            "name": "chat-b-evaluation", "kind": "Evaluation", "state": "Failed",
            "message": "deadline exceeded",
        }
    ]  # fmt: skip
