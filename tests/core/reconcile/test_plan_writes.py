"""Objects that a plan applies: revisions, Deployments, evaluations, disruption budgets and replicas."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.two_revisions import (
    JOB,
    KNOWN,
    NEW,
    OLD,
    SERVES,
    SPEC,
    STARTS,
    deployment,
    observed_in,
    planned,
    pod,
    preflight,
    recorded,
)

from penstock.core.manifests.disruption import engines_budget
from penstock.core.observed.children import ObservedBudget
from penstock.core.observed.rollout_phases import Phase
from penstock.core.reconcile.plan import Plan
from penstock.core.reconcile.plan_steps import Deletion, Scale
from penstock.core.spec.history import PODS_ANNOTATION, STABLE_ANNOTATION, PinnedPods, Revision
from penstock.core.spec.rollout import EvaluationSpec, RolloutSpec
from penstock.core.spec.service import ServiceSpec


def test_only_the_stable_revision_is_recorded_as_stable_though_its_pods_go() -> None:
    known = tuple(replace(entry, was_stable=False) for entry in KNOWN)
    judged = observed_in(deployment(), deployment(OLD, 4), history=known)
    stopping = observed_in(
        deployment(OLD), history=known, phase="Stopping", strategy="Recreate", traffic=()
    )
    for observed in (judged, stopping):
        made = planned(observed, desired=1)
        [record] = [body for body in made.apply if body["kind"] == "ControllerRevision"]
        assert record["metadata"]["name"] == f"chat-{OLD}"
        assert record["metadata"]["annotations"][STABLE_ANNOTATION] == "true"
        assert made.details[0] == f"record revision {OLD} as number 1"


STOPS: dict[str, Any] = {"phase": "Stopping", "strategy": "Recreate", "traffic": ()}


def test_a_deployment_takes_over_orphaned_pods_to_end_them() -> None:
    engines = pod(OLD, "p"), pod(OLD, "q")
    made = planned(observed_in(*engines, preflight(OLD), history=KNOWN, **STOPS))
    [body] = [body for body in made.apply if body["kind"] == "Deployment"]
    assert (body["metadata"]["name"], body["spec"]["replicas"]) == (f"chat-{OLD}", 0)


def test_recreate_scales_the_old_deployment_to_zero_and_removes_it_when_its_pods_are_gone() -> None:
    stopping = planned(observed_in(deployment(OLD, 4), pod(OLD), history=KNOWN, **STOPS))
    assert (stopping.scale, stopping.delete) == ((Scale(f"chat-{OLD}", 0),), ())
    started = STOPS | {"phase": "Starting", "stable": None}
    starting = planned(observed_in(deployment(OLD, 0), history=KNOWN, **started))
    assert [each.name for each in starting.delete] == [f"chat-{OLD}"]


def images(made: Plan) -> dict[str, str]:
    """Images of the applied objects by kind."""
    found = {}
    for body in made.apply:
        if body["kind"] == "Deployment":
            [engine] = body["spec"]["template"]["spec"]["containers"]
            found["Deployment"] = engine["image"]
        elif body["kind"] == "ControllerRevision":
            pods = PinnedPods.of(body["metadata"]["annotations"][PODS_ANNOTATION])
            found["ControllerRevision"] = pods.image if pods else ""
    return found


@pytest.mark.parametrize(
    ("children", "history", "expected"),
    [
        ((preflight(),), (recorded(NEW, 2, "rec"),), {"Deployment": "rec"}),
        ((preflight(),), (), {"ControllerRevision": "image", "Deployment": "image"}),
        ((preflight(),), (recorded(NEW, 2, None),),
         {"ControllerRevision": "image", "Deployment": "image"}),
        ((deployment(image="live"),), (recorded(NEW, 2, "rec"),), {"Deployment": "rec"}),
        ((deployment(image="live"),), (recorded(NEW, 2, None),), {"ControllerRevision": "live"}),
        ((deployment(image="live"),), (), {"ControllerRevision": "live"}),
        ((deployment(image="live", is_hashed=False),), (recorded(NEW, 2, "rec"),),
         {"ControllerRevision": "live", "Deployment": "live"}),
        ((deployment(image="live", is_hashed=False),), (recorded(NEW, 2, None),),
         {"ControllerRevision": "live", "Deployment": "live"}),
    ],
)  # fmt: skip
def test_pods_are_as_recorded_or_as_they_are_or_new(
    children: Any, history: tuple[Revision, ...], expected: dict[str, str]
) -> None:
    observed = observed_in(*children, stable=None, traffic=(), history=history, **STARTS)
    assert images(planned(observed)) == expected


def test_a_deployment_is_repaired_unless_it_goes_or_only_has_more() -> None:
    bare = deployment(replicas=4)
    more = replace(bare, body=bare.body | {"status": {"replicas": 4}})
    other = deployment(replicas=4, image="other")
    for each, details in (
        (bare, ()),
        (more, ()),
        (other, (f"repair chat-{NEW}",)),
        (replace(other, is_ending=True), ()),
    ):
        observed = observed_in(each, pod(), budget=ObservedBudget(foreign="mine"), **SERVES)
        made = planned(observed)
        assert (made.details, len(made.apply)) == (details, len(details))


EVALUATION = EvaluationSpec(image="e")
EVALUATED = replace(SPEC, rollout=RolloutSpec(strategy="Canary", evaluation=EVALUATION))
CANARIES = (
    pod(name="a", address="10.0.0.3"), pod(name="b", address="10.0.0.2"),
    pod(name="c", address="10.0.0.1", ready=False), pod(name="d"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("children", "phase", "spec", "address"),
    [
        (CANARIES, "Judging", EVALUATED, "10.0.0.2"),
        (CANARIES[:1], "Judging", EVALUATED, "10.0.0.3"),
        (CANARIES[2:], "Judging", EVALUATED, None),
        (CANARIES, "Judging", SPEC, None),
        (CANARIES, "Paused", EVALUATED, None),
        (CANARIES, "Growing", EVALUATED, None),
        ((*CANARIES, JOB), "Judging", EVALUATED, None),
        ((*CANARIES, replace(JOB, is_ending=True)), "Judging", EVALUATED, None),
        ((*CANARIES, replace(JOB, revision=OLD)), "Judging", EVALUATED, "10.0.0.2"),
    ],
)
def test_one_ready_pod_of_a_canary_is_evaluated_once(
    children: Any, phase: Phase, spec: ServiceSpec, address: str | None
) -> None:
    made = planned(observed_in(deployment(), deployment(OLD, 4), *children, phase=phase), spec)
    jobs = [body for body in made.apply if body["kind"] == "Job"]
    assert len(jobs) == (address is not None)
    assert (f"evaluate revision {NEW}" in made.details) is (address is not None)
    text = json.dumps(jobs)
    assert [a for a in ("10.0.0.1", "10.0.0.2", "10.0.0.3") if a in text] == [address] * len(jobs)
    assert not jobs or OLD in text


OURS = engines_budget(SPEC)
OURS["metadata"]["uid"] = "bu"
DEFAULTED = {**OURS, "spec": {**OURS["spec"], "added": 1}}
LEFT = {**OURS, "metadata": {**OURS["metadata"], "deletionTimestamp": "now"}}
OTHERWISE = {**OURS, "spec": {**OURS["spec"], "maxUnavailable": 2}}
ALLOWED, REMOVED = ("allow one disruption at a time: chat-engines",), ("remove chat-engines",)


@pytest.mark.parametrize(
    ("children", "desired", "known", "details"),
    [
        ((deployment(replicas=2),), 2, ObservedBudget(), ALLOWED),
        ((deployment(replicas=1),), 1, ObservedBudget(), ()),
        ((), 2, ObservedBudget(), ()),
        ((deployment(replicas=2),), 2, ObservedBudget(OURS), ()),
        ((deployment(replicas=2),), 2, ObservedBudget(DEFAULTED), ()),
        ((deployment(replicas=2),), 2, ObservedBudget(OTHERWISE), ALLOWED),
        ((deployment(replicas=2),), 2, ObservedBudget(foreign="mine"), ()),
        ((deployment(replicas=2),), 2, ObservedBudget(OURS, "mine"), REMOVED),
        ((deployment(replicas=1),), 1, ObservedBudget(OURS), REMOVED),
        ((deployment(replicas=1),), 1, ObservedBudget(LEFT), ()),
    ],
)
def test_a_budget_is_there_while_there_is_more_than_one_pod(
    children: Any, desired: int, known: ObservedBudget, details: tuple[str, ...]
) -> None:
    state = {
        **SERVES,
        "phase": "Starting",
        "stable": None,
        "revision": NEW,
        "strategy": "BlueGreen",
    }
    observed = observed_in(*children, preflight(phase="Running"), budget=known, **state)
    made = planned(observed, desired=desired)
    assert made.details == details
    assert [body["kind"] for body in made.apply] == ["PodDisruptionBudget"] * (details == ALLOWED)
    gone = (Deletion("PodDisruptionBudget", "chat-engines", "bu"),) if details == REMOVED else ()
    assert made.delete == gone


def test_replicas_are_set_where_they_differ() -> None:
    for each, scale in (
        (deployment(replicas=4), ()),
        (deployment(replicas=5), (Scale(f"chat-{NEW}", 4),)),
        (deployment(replicas=3), (Scale(f"chat-{NEW}", 4),)),
        (deployment(replicas=3, is_ending=True), ()),
    ):
        observed = observed_in(each, pod(), budget=ObservedBudget(foreign="mine"), **SERVES)
        made = planned(observed, desired=4)
        assert made.scale == scale
        assert made.details == tuple(f"set chat-{NEW} to 4 replicas" for _ in scale)
