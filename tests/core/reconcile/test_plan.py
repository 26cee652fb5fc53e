"""The next writes of a plan, by situation."""

from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.one_revision import (
    NOW_S,
    REFUSED,
    REVISION,
    SPEC,
    deployment,
    observed_in,
    pod,
    preflight,
)
from tests.support.specs.service_spec import pod_resources

from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedState
from penstock.core.observed.rollout_phases import Phase
from penstock.core.reconcile.conditions import conditions
from penstock.core.reconcile.plan import PlanInputs, plan
from penstock.core.reconcile.plan_steps import LOST_RETRY_S
from penstock.core.spec.revision import revision_of
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.service import ServiceSpec


def actions(spec: ServiceSpec, observed: ObservedState) -> dict[str, Any]:
    made = plan(spec, observed, "image", NOW_S + 1)
    return {
        "create": [b["metadata"]["name"] for b in made.create],
        "apply": [b["metadata"]["name"] for b in made.apply],
        "scale": [(s.deployment, s.replicas) for s in made.scale],
        "delete": [d.name for d in made.delete],
        "phase": made.rollout.phase,
        "stable": made.rollout.stable,
        "shares": [(s.side.revision, s.percent) for s in made.shares],
    }


NOTHING: dict[str, Any] = {"create": [], "apply": [], "scale": [], "delete": []}
NAME = f"chat-{REVISION}"


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(
            ObservedState(),
            {"phase": "Starting", "shares": []},
            id="a-phase-is-written-down-before-anything-is-done",
        ),
        pytest.param(
            replace(observed_in(), history=()),
            {"apply": [NAME], "create": [f"{NAME}-preflight"]},
            id="the-revision-is-remembered-and-the-model-looked-at",
        ),
        pytest.param(observed_in(preflight("", "Running")), {}, id="and-waited-for"),
        pytest.param(
            observed_in(preflight(REFUSED, "Failed")), {"phase": "Starting"}, id="a-refusal-ends-here"
        ),
        pytest.param(observed_in(preflight()), {"apply": [NAME]}, id="a-pass-makes-the-deployment"),
        pytest.param(
            observed_in(deployment(), preflight(), pod("a", ready=False)),
            {"phase": "Starting", "shares": []},
            id="traffic-waits-for-a-ready-pod",
        ),
        pytest.param(
            observed_in(deployment(), preflight(), pod("a")),
            {"phase": "Stable", "stable": REVISION, "shares": [(REVISION, 100)]},
            id="and-comes-with-it",
        ),
        pytest.param(
            observed_in(deployment(replicas=7), pod("a"), phase="Stable", stable=REVISION),
            {"scale": [(NAME, 3)], "apply": ["chat-engines"]},
            id="bounds-hold",
        ),
        pytest.param(
            observed_in(deployment("old", 2), pod("b", "old"), phase="Stable", stable="old"),
            {"phase": "Replacing", "shares": [("old", 100)]},
            id="another-revision-is-another-phase-first",
        ),
        pytest.param(
            observed_in(
                deployment(), deployment("old"), pod("a"), preflight(revision="old"),
                phase="Stable", stable=REVISION,
            ),
            {"delete": ["chat-old", "p-old"]},
            id="what-has-no-traffic-goes",
        ),
        pytest.param(
            observed_in(
                deployment(), deployment("old"), pod("a"),
                phase="Stable", stable=REVISION, told="old",
            ),
            {"delete": [], "shares": [(REVISION, 100)]},
            id="but-only-once-gateways-were-told",
        ),
        pytest.param(observed_in(name_taken_by="other"), {}, id="a-taken-name-starts-nothing"),
        pytest.param(
            observed_in(preflight(), refusals={REVISION: ("PodTemplateRejected", "bad")}),
            {},
            id="no-retry-of-a-refusal",
        ),
        pytest.param(
            observed_in(preflight(), refusals={"old": ("PodTemplateRejected", "bad")}),
            {"apply": [NAME]},
            id="a-refusal-stops-no-other-revision",
        ),
        pytest.param(
            observed_in(
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
def test_the_next_writes(observed: ObservedState, expected: dict[str, Any]) -> None:
    made = actions(SPEC, observed)
    assert {key: made[key] for key in {**NOTHING, **expected}} == {**NOTHING, **expected}


def test_external_replicas_are_set_and_a_dry_run_leaves_them() -> None:
    observed = observed_in(deployment(replicas=2), pod("a"), phase="Stable", stable=REVISION)
    external = replace(SPEC, scaling=replace(SPEC.scaling, mode="External"), external_replicas=0)
    assert actions(external, observed)["scale"] == [(NAME, 0)]
    dry_run = replace(SPEC, scaling=replace(SPEC.scaling, mode="DryRun", max_replicas=1))
    assert actions(dry_run, observed)["scale"] == []


def test_a_service_at_zero_keeps_its_deployment_and_a_rollout_of_it_has_a_replica() -> None:
    wakes = replace(SPEC, scaling=replace(SPEC.scaling, min_replicas=0))
    zero = PlanInputs(desired=0)
    settled = observed_in(deployment(replicas=1), pod("a"), phase="Stable", stable=REVISION)
    asleep = plan(wakes, settled, "image", NOW_S + 1, zero)
    assert (asleep.total, [s.replicas for s in asleep.scale]) == (0, [0])
    assert [(s.side.revision, s.percent) for s in asleep.shares] == [(REVISION, 100)]
    deleted = observed_in(preflight(), phase="Stable", stable=REVISION)
    again = plan(wakes, replace(deleted, stored_total=0), "image", NOW_S + 1, zero)
    assert [(b["metadata"]["name"], b["spec"]["replicas"]) for b in again.apply] == [(NAME, 0)]
    rolling = observed_in(deployment(replicas=0), phase="Starting")
    assert plan(wakes, rolling, "image", NOW_S + 1, zero).total == 1


@pytest.mark.parametrize(
    ("change", "is_new"),
    [
        ({"generation": 2}, False),
        ({"scaling": replace(SPEC.scaling, max_replicas=9)}, False),
        ({"external_replicas": 4}, False),
        ({"rollout": RolloutSpec(strategy="Canary")}, False),
        ({"model_uri": "pvc://models/other"}, True),
        ({"resources": pod_resources(memory="2Gi")}, True),
        ({"template": {"spec": {"nodeSelector": {"a": "b"}}}}, True),
        ({"termination_grace_s": 46}, True),
    ],
)
def test_only_what_shapes_a_pod_makes_a_revision(change: dict[str, Any], is_new: bool) -> None:
    assert (revision_of(replace(SPEC, **change)) != REVISION) is is_new


def test_an_applied_deployment_states_its_replicas() -> None:
    """Else the API server would give it one, and all other pods of an orphaned Deployment would end."""
    three = replace(SPEC, scaling=replace(SPEC.scaling, mode="External"), external_replicas=3)
    stable: dict[str, Any] = {"phase": "Stable", "stable": REVISION}
    missing = plan(three, observed_in(preflight(), **stable), "image", NOW_S + 1)
    assert [body["spec"]["replicas"] for body in missing.apply] == [3]
    paused = deployment(replicas=2)
    metadata = paused.body["metadata"] | {"resourceVersion": "7"}
    spec = paused.body["spec"] | {"paused": True}
    paused = replace(paused, body=paused.body | {"metadata": metadata, "spec": spec})
    made = plan(three, observed_in(paused, pod("a"), **stable), "image", NOW_S + 1)
    (repair,) = (body for body in made.apply if body["kind"] == "Deployment")
    assert (repair["spec"]["replicas"], repair["spec"]["paused"]) == (2, False)
    assert repair["metadata"]["resourceVersion"] == "7"
    assert [each.replicas for each in made.scale] == [3]


def test_a_preflight_that_its_node_gave_up_is_made_anew_but_not_at_once() -> None:
    """A node that admits no pod would be sent one after the other."""
    made_at = timestamp(NOW_S)
    lost = replace(preflight("", "Failed"), lost="Evicted: low on memory", created_at=made_at)
    observed = observed_in(lost)
    early = plan(SPEC, observed, "image", NOW_S + 1)
    assert (early.is_empty, early.rollout.phase) == (True, "Starting")
    assert early.wake_s == LOST_RETRY_S - 1
    tree = {c.type: c for c in conditions(SPEC, observed, early, None)}
    assert (tree["ModelReady"].status, tree["ModelReady"].reason) == ("Unknown", "PreflightLost")
    assert "low on memory" in tree["ModelReady"].message
    assert tree["Stalled"].status == "False"

    due = plan(SPEC, observed, "image", NOW_S + LOST_RETRY_S)
    assert [deletion.name for deletion in due.delete] == [lost.name]
    going = observed_in(replace(lost, is_ending=True))
    assert [b["kind"] for b in plan(SPEC, going, "image", NOW_S + 20).create] == ["Pod"]


def test_a_later_revision_is_not_rejected_for_a_node() -> None:
    lost = replace(preflight("", "Failed"), lost="Evicted", created_at=timestamp(NOW_S))
    observed = observed_in(
        deployment("old"), pod("b", "old"), lost, strategy="BlueGreen", stable="old"
    )  # fmt: skip
    assert plan(SPEC, observed, "image", NOW_S + 30).rollout.phase == "Starting"


@pytest.mark.parametrize(("of", "phase"), [(REVISION, "Discarding"), ("old", "Starting")])
def test_a_refusal_is_of_the_revision_whose_object_was_refused(of: str, phase: Phase) -> None:
    observed = observed_in(
        deployment("old"), pod("b", "old"), strategy="BlueGreen", stable="old",
        refusals={of: ("PodTemplateRejected", "bad")},
    )  # fmt: skip
    assert plan(SPEC, observed, "image", NOW_S + 1).rollout.phase == phase
