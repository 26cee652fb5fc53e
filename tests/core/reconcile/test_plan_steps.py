"""Parts of a plan: its generation, the time of the next plan, the total of replicas and the first writes."""

from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.two_revisions import (
    KNOWN,
    NEW,
    NOW_S,
    OLD,
    SERVES,
    SPEC,
    STABLE_SPEC,
    STARTS,
    TO_NEW,
    TO_OLD,
    VARIANTS,
    deployment,
    names,
    observed_in,
    planned,
    pod,
    preflight,
)
from tests.support.specs.preflight_messages import PASSED

from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedState
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.plan import Plan, replicas_for_all
from penstock.core.reconcile.plan_steps import Deletion, Scale
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import RolloutMirror
from penstock.core.spec.service import ServiceSpec


def test_a_plan_is_empty_when_it_writes_nothing_of_any_kind() -> None:
    base = Plan(NEW, RolloutState("Canary", "Stable", 0.0, "", NEW, None, 1), ())
    assert base.is_empty
    deletion, body = Deletion("Job", "j", "u"), {"kind": "Job"}
    for write in ({"apply": (body,)}, {"create": (body,)}, {"scale": (Scale("d", 1),)},
                  {"delete": (deletion,)}):  # fmt: skip
        assert not replace(base, **write).is_empty


@pytest.mark.parametrize(
    ("rest", "generation"),
    [
        ({}, 5),
        ({"traffic": TO_OLD}, 6),
        ({"traffic": ()}, 6),
        ({"mirror": RolloutMirror((Side(NEW),), 50)}, 6),
    ],
)
def test_the_generation_counts_changes_of_the_traffic(rest: Any, generation: int) -> None:
    observed = observed_in(deployment(), pod(), traffic_generation=5, **{**SERVES, **rest})
    assert planned(observed).generation == generation


def test_a_new_phase_is_planned_again_at_once_and_names_no_lagging_gateway() -> None:
    behind: dict[str, Any] = {"applied_generations": {"g": 0}}
    promoted = observed_in(
        deployment(), deployment(OLD), pod(), phase="Promoting", traffic=TO_NEW, traffic_generation=1
    )  # fmt: skip
    made = planned(promoted, **behind)
    assert made.wake_s == 1.0
    assert made.waiting_for == "gateway g applies traffic generation 0, not 1 yet"
    growing = observed_in(
        deployment(), pod(), phase="Growing", strategy="Canary", traffic=TO_NEW, traffic_generation=1
    )  # fmt: skip
    made = planned(growing, **behind, desired=1)
    assert (made.rollout.phase, made.wake_s, made.waiting_for) == ("Promoting", 0.0, "")
    calm = observed_in(deployment(), pod(), **SERVES)
    assert (planned(calm).wake_s, planned(calm).waiting_for) == (None, "")


def lost(name: str, made_s: float, **rest: Any) -> ObservedPod:
    made = preflight(
        name=name, uid=f"u-{name}", phase="Failed", termination_message="", lost="Evicted"
    )
    return replace(made, created_at=timestamp(NOW_S + made_s), **rest)


@pytest.mark.parametrize(
    ("pods", "wake_s", "deleted"),
    [
        ((), None, []),
        ((lost("a", -4), lost("b", -6), lost("c", -2)), 4.0, []),
        ((lost("a", -10), lost("b", -4), lost("c", -11)), 6.0, ["a", "c"]),
        ((lost("a", -9),), 1.0, []),
        ((lost("a", -10),), None, ["a"]),
        ((lost("a", -10, is_ending=True),), None, []),
        ((lost("a", -4, lost=""), lost("b", -4, role="serve")), None, []),
        ((lost("a", -20, lost=""), lost("b", -20, role="serve")), None, []),
        ((lost("a", -20, termination_message=PASSED),), None, []),
    ],
)
def test_a_lost_preflight_is_replaced_ten_seconds_after_it_was_made(
    pods: tuple[ObservedPod, ...], wake_s: float | None, deleted: list[str]
) -> None:
    made = planned(observed_in(deployment(), pod(), *pods, **SERVES), after_s=0.0)
    assert made.wake_s == wake_s
    assert made.delete == tuple(Deletion("Pod", name, f"u-{name}") for name in deleted)


SHADOW, EXTERNAL = (
    replace(SPEC, scaling=replace(SPEC.scaling, mode=mode, max_replicas=5, min_replicas=2))
    for mode in ("DryRun", "External")
)
ACTIVE = replace(SHADOW, scaling=replace(SHADOW.scaling, mode="Active"))
SETTLED = observed_in(deployment(OLD, 4), phase="Stable", revision=None)


@pytest.mark.parametrize(
    ("spec", "observed", "desired", "total"),
    [
        (SHADOW, ObservedState(), None, 1),
        (ACTIVE, ObservedState(), None, 2),
        (SHADOW, SETTLED, None, 4),
        # Its Deployment was deleted.
        (SHADOW, observed_in(phase="Stable", revision=None, stored_total=4), None, 4),
        (SHADOW, SETTLED, 3, 4),
        (SHADOW, observed_in(deployment(OLD, 7), phase="Stable", revision=None), None, 7),
        (SHADOW, observed_in(deployment(NEW, 7), phase="Stable", revision=None), None, 1),
        (SHADOW, observed_in(deployment(OLD, 0), phase="Stable", revision=None), None, 0),
        # the number when the rollout started
        (SHADOW, observed_in(deployment(OLD, 7)), None, 4),
        (ACTIVE, observed_in(deployment(OLD, 7)), None, 4),
        (ACTIVE, SETTLED, None, 4),
        (ACTIVE, SETTLED, 3, 3),
        (ACTIVE, SETTLED, 0, 2),
        (ACTIVE, SETTLED, 6, 5),
        (EXTERNAL, SETTLED, 1, 3),
    ],
)
def test_how_many_pods_all_of_the_traffic_needs(
    spec: ServiceSpec, observed: ObservedState, desired: int | None, total: int
) -> None:
    assert replicas_for_all(spec, observed, desired) == total


def test_the_first_steps_are_told_in_words() -> None:
    made = planned(observed_in(history=KNOWN[:1], stable=None, traffic=(), **STARTS))
    assert [body["metadata"]["name"] for body in made.create] == [f"chat-{NEW}-preflight"]
    assert made.details == (
        f"record revision {NEW} as number 2",
        f"check the model for revision {NEW}",
    )
    made = planned(observed_in(preflight(), stable=None, traffic=(), **STARTS))
    assert made.details == (f"create chat-{NEW}",)


def test_revisions_without_an_owner_are_adopted() -> None:
    orphans = tuple(replace(each, is_orphan=True) for each in KNOWN)
    made = planned(observed_in(history=orphans, stable=None, traffic=(), **STARTS))
    recorded = [body["metadata"]["name"] for body in made.apply]
    assert sorted(recorded) == sorted(f"chat-{each.revision}" for each in orphans)
    assert all(body["metadata"]["ownerReferences"] for body in made.apply)
    assert any(detail.startswith("adopt revision") for detail in made.details)


def test_a_side_whose_spec_is_unknown_holds_up_no_other() -> None:
    made = planned(observed_in(preflight(), stable_spec=None, **STARTS))
    assert names(made) == [f"chat-{NEW}"]


def test_a_control_needs_no_preflight() -> None:
    made = planned(observed_in(preflight(), phase="Starting"))
    assert [body["metadata"]["name"] for body in made.create] == [f"chat-{OLD}-preflight"]
    assert names(made) == [f"chat-{NEW}", f"chat-{OLD}-control"]


def test_a_side_that_is_left_as_it_is_gets_no_pods_on_another_variant() -> None:
    spec = replace(SPEC, variants=VARIANTS)
    observed = observed_in(
        deployment(OLD, 4, variant="spot"), deployment(NEW, 4, variant="plain"), phase="Growing",
        stable_spec=replace(STABLE_SPEC, variants=VARIANTS),
    )  # fmt: skip
    made = planned(observed, spec, by_variant={"spot": 0, "plain": 4}, desired=4)
    assert f"chat-{OLD}-plain" not in names(made)
    assert made.scale == ()


@pytest.mark.parametrize("external", [0, 2])
def test_a_service_of_no_pods_has_a_deployment(external: int) -> None:
    spec = replace(EXTERNAL, external_replicas=external)
    made = planned(observed_in(preflight(), stable=None, traffic=(), **STARTS), spec)
    assert names(made) == [f"chat-{NEW}"]


@pytest.mark.parametrize("spec", [EXTERNAL, replace(SPEC, external_replicas=0)])
def test_a_variant_without_replicas_has_no_deployment(spec: ServiceSpec) -> None:
    spec = replace(spec, variants=VARIANTS)
    observed = observed_in(preflight(), stable=None, traffic=(), **STARTS)
    made = planned(observed, spec, by_variant={"spot": 0, "plain": 4})
    assert names(made) == [f"chat-{NEW}-plain"]
