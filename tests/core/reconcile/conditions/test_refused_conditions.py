"""Conditions while a spec is refused: they describe what still runs, and nothing of the new spec."""

from dataclasses import replace

import pytest
from tests.support.specs.service_spec import SMALL

from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.name_claims import MODEL_NAME_CONFLICT
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.condition_types import (
    ACCESS_CONTROLLED,
    CONDITIONAL_TYPES,
    TYPES,
)
from penstock.core.reconcile.refused_conditions import Refusal, refused_conditions
from penstock.core.reconcile.status import render_refused
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.service import ServiceSpec

REFUSAL = Refusal("InvalidSpec", "spec.x: no")
REFUSED = ("InvalidSpec", "spec.x: no")
WHY = "the spec is invalid, so the operator changes nothing of the service"
OLD = "a" * 8
STABLE = RolloutState("Canary", "Stable", 0.0, "because", OLD, None, 1)
POD = ObservedPod("p", "p", OLD, "serve", "", True, False, "Running", None, "")
SERVING = ObservedState(
    deployments=(ObservedDeployment("d", "d", OLD, 1, 1, False, {}),),
    pods=(POD,),
    rollout=STABLE,
    traffic=(Share(Side(OLD), 100),),
)
CRASHED = replace(POD, is_ready=False, trouble=("CrashLoopBackOff", "no memory"))


def conditions_of(
    observed: ObservedState, *known: str, spec: ServiceSpec = SMALL
) -> dict[str, tuple[str, str, str]]:
    found = refused_conditions(REFUSAL, spec, observed, known)
    return {each.type: (each.status, each.reason, each.message) for each in found}


def test_a_revision_that_serves_is_told_to_serve() -> None:
    assert conditions_of(SERVING, "ScalingActive") == {
        "SpecValid": ("False", *REFUSED),
        "ModelReady": ("True", "Serving", "the revision has engines"),
        "WorkloadReady": ("True", "EnginesReady", f"revision {OLD} has the engines it needs"),
        "TrafficAvailable": ("True", "Serving", f"revision {OLD} receives traffic"),
        "RolledOut": ("False", "InvalidSpec", WHY),
        "ScalingActive": ("False", "InvalidSpec", f"{WHY}: the number of replicas stays as it is"),
        "Reconciling": ("False", "Stalled", "the condition Stalled says why"),
        "Stalled": ("True", *REFUSED),
        "Ready": ("True", "Ready", "the service answers requests"),
    }


def test_an_outage_shows_while_the_spec_is_refused() -> None:
    found = conditions_of(replace(SERVING, pods=(CRASHED,)))
    assert found["WorkloadReady"] == ("False", "CrashLoopBackOff", "no memory")
    assert found["TrafficAvailable"][:2] == ("False", "NoEngineReady")
    assert found["Ready"] == ("False", *REFUSED)


def test_requests_go_to_the_older_service_of_that_name() -> None:
    assert conditions_of(replace(SERVING, name_taken_by="older"))["Ready"] == ("False", *REFUSED)


def test_the_conditions_are_about_the_revision_that_was_rolled_out_last() -> None:
    found = conditions_of(
        replace(SERVING, rollout=replace(STABLE, phase="Judging", revision="b" * 8))
    )
    assert found["WorkloadReady"][:2] == ("False", "NoEngines")
    assert found["Ready"][:2] == ("True", "Ready")


def test_a_service_that_never_ran_waits_for_another_spec() -> None:
    found = conditions_of(ObservedState())
    assert found["ModelReady"] == found["WorkloadReady"] == ("Unknown", "InvalidSpec", WHY)
    assert found["TrafficAvailable"][:2] == ("False", "NoRevision")
    assert found["Ready"] == ("False", *REFUSED)


def test_a_service_without_replicas_by_its_spec_is_ready() -> None:
    external = replace(SMALL, scaling=replace(SMALL.scaling, mode="External"), external_replicas=0)
    assert conditions_of(replace(SERVING, pods=()), spec=external)["Ready"][:2] == (
        "True",
        "ScaledToZero",
    )


@pytest.mark.parametrize("known", CONDITIONAL_TYPES)
def test_no_condition_vanishes_and_none_is_added(known: str) -> None:
    found = conditions_of(SERVING, known, "other.io/Seen")
    left_out = {*CONDITIONAL_TYPES, MODEL_NAME_CONFLICT, ACCESS_CONTROLLED} - {known}
    assert [*found] == [each for each in TYPES if each not in left_out]


def test_a_refused_service_whose_short_name_is_held_elsewhere_says_so() -> None:
    taken = replace(SERVING, name_conflict="b/chat has it")
    found = conditions_of(taken)
    assert found.pop("ModelNameConflict") == ("True", "HeldByOtherNamespace", "b/chat has it")
    assert found == conditions_of(SERVING)


def test_the_numbers_of_pods_are_kept_current() -> None:
    observed = replace(
        SERVING, pods=(POD, replace(CRASHED, name="q"), replace(POD, is_ending=True))
    )
    status = render_refused(REFUSAL, replace(SMALL, generation=7), observed, {}, "now")
    assert (status["replicas"], status["readyReplicas"]) == (2, 1)
    assert status["observedGeneration"] == 7
    assert {each["observedGeneration"] for each in status["conditions"]} == {7}
