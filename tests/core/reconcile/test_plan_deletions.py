"""Deletions of a plan, and the objects that it keeps."""

from dataclasses import replace
from typing import Any

import pytest
from tests.core.reconcile.two_revisions import (
    JOB,
    NEW,
    NOW_S,
    OLD,
    OTHER,
    SERVES,
    SPEC,
    STABLE_SPEC,
    VARIANTS,
    deployment,
    observed_in,
    planned,
    pod,
    preflight,
    recorded,
)

from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.children import ObservedJob
from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.rollout_phases import Phase
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.plan_steps import Deletion
from penstock.core.routing.pick import Side
from penstock.core.routing.traffic_split import Share
from penstock.core.spec.rollout import RolloutSpec
from penstock.core.spec.service import CONTROL


def test_what_is_of_no_side_goes_once_gateways_were_told() -> None:
    mine, other = deployment(replicas=1), deployment(OTHER)
    for each, rest, gone in (
        (other, {}, True),
        (other, {"traffic": (Share(Side(OTHER), 100),)}, False),
        (replace(other, is_ending=True), {}, False),
        (deployment(NEW, cohort=CONTROL), {}, True),
    ):
        made = planned(observed_in(mine, pod(), each, **{**SERVES, **rest}), desired=1)
        assert made.delete == ((Deletion("Deployment", each.name, each.uid),) if gone else ())
        assert made.details == ((f"remove {each.name}",) if gone else ())


@pytest.mark.parametrize(
    ("job", "phase", "gone"),
    [
        (JOB, "Judging", False),
        (JOB, "Paused", False),
        (JOB, "Growing", False),
        (JOB, "Promoting", True),
        (replace(JOB, revision=OLD), "Judging", True),
        (replace(JOB, revision=OLD, is_ending=True), "Judging", False),
    ],
)
def test_an_evaluation_goes_when_it_decides_nothing_any_more(
    job: ObservedJob, phase: Phase, gone: bool
) -> None:
    made = planned(observed_in(deployment(), deployment(OLD, 4), job, phase=phase))
    assert [d for d in made.delete if d.kind == "Job"] == [Deletion("Job", "j", "ju")] * gone


def test_preflights_of_revisions_that_are_not_in_use_go() -> None:
    observed = observed_in(
        preflight(OLD), preflight(), preflight(OTHER), preflight("d" * 8, is_ending=True),
        pod("e" * 8, "e"), phase="Draining",
    )  # fmt: skip
    made = planned(observed)
    assert made.delete == (Deletion("Pod", f"f-{OTHER}", f"u-f-{OTHER}"),)


def ended(name: str, created_s: float, ended_s: float | None, **rest: Any) -> ObservedPod:
    """An engine that was evicted. Times in seconds before NOW_S; ended_s: None if it never ran."""
    unready_at = None if ended_s is None else timestamp(NOW_S - ended_s)
    times = {"created_at": timestamp(NOW_S - created_s), "unready_at": unready_at}
    return pod(name=name, ready=False, **{"phase": "Failed", **times, **rest})


@pytest.mark.parametrize(
    ("pods", "gone"),
    [
        ([ended("a", 9000, 598)], ""),
        ([ended("a", 9000, 599)], "a"),
        ([ended("a", 599, None)], "a"),
        # The last of several ended pods is kept.
        ([ended("a", 300, 200), ended("b", 200, 100), ended("c", 100, 1)], "ba"),
        ([ended("a", 300, 200), ended("b", 200, 100, variant="spot")], ""),
        ([ended("a", 300, 200), ended("b", 200, 100, cohort=CONTROL)], ""),
        ([ended("a", 300, 200), ended("b", 200, 100, is_ending=True)], ""),
        ([ended("a", 9000, 600, phase="Running")], ""),
    ],
)
def test_engines_that_were_evicted_go(pods: list[ObservedPod], gone: str) -> None:
    made = planned(observed_in(deployment(), *pods))
    assert [d for d in made.delete if d.kind == "Pod"] == [
        Deletion("Pod", name, f"u-{name}") for name in gone
    ]


def test_revisions_in_use_are_remembered_whatever_the_limit() -> None:
    spec = replace(SPEC, rollout=RolloutSpec(history=0))
    entries = [recorded(name, number) for number, name in enumerate((OLD, NEW, OTHER, "d" * 8), 1)]
    observed = observed_in(
        deployment(OLD, 4), phase="Rejected", revision=None, rejected=OTHER, history=tuple(entries)
    )  # fmt: skip
    made = planned(observed, replace(spec, settings={**spec.settings, "engine.seed": 0}))
    assert [d for d in made.delete if d.kind == "ControllerRevision"] == []
    observed = replace(
        observed, rollout=RolloutState("Canary", "Discarding", NOW_S, "r", OLD, NEW, 4)
    )
    made = planned(replace(observed, deployments=(deployment(OLD, 4), deployment())), spec)
    gone = [d for d in made.delete if d.kind == "ControllerRevision"]
    assert gone == [
        Deletion("ControllerRevision", f"chat-{name}", f"u-{name}") for name in (OTHER, "d" * 8)
    ]


def test_the_revision_with_the_record_of_the_state_is_kept_whatever_the_limit() -> None:
    """The revision with the record is kept even without pods; the next change moves the record."""
    spec = replace(SPEC, rollout=RolloutSpec(history=0))
    entries = tuple(recorded(name, number) for number, name in enumerate((OTHER, OLD, NEW), 1))
    state = RolloutState("Canary", "Discarding", NOW_S, "r", OLD, NEW, 4)
    observed = replace(
        observed_in(deployment(OLD, 4), deployment(), history=entries), rollout=state
    )
    named = {d.name for d in planned(observed, spec).delete if d.kind == "ControllerRevision"}
    assert named == {f"chat-{OTHER}"}
    kept = planned(replace(observed, state_holder=OTHER), spec)
    assert [d for d in kept.delete if d.kind == "ControllerRevision"] == []


@pytest.mark.parametrize(
    ("ready", "phase", "gone"), [(4, "Stable", True), (3, "Stable", False), (9, "Promoting", False)]
)
def test_a_variant_that_the_spec_has_no_more_goes_when_the_others_have_enough(
    ready: int, phase: Phase, gone: bool
) -> None:
    spec = replace(SPEC, variants=VARIANTS[:1])
    revision, other = (NEW, OLD) if phase == "Stable" else (OLD, NEW)
    pods = [pod(revision, f"p{n}", variant="spot", ready=n < ready) for n in range(9)]
    state: dict[str, Any] = SERVES if phase == "Stable" else {"phase": phase}
    state = state | {"stable_spec": replace(STABLE_SPEC, variants=VARIANTS[:1])}
    observed = observed_in(
        deployment(revision, 4, variant="spot"), deployment(revision, 4, variant="plain"),
        deployment(other, variant="spot"), *pods,
        *(pod(revision, f"q{n}", variant="plain") for n in range(9)),
        **state,
    )  # fmt: skip
    made = planned(observed, spec, desired=4, by_variant={"spot": 4})
    assert (f"chat-{revision}-plain" in {deletion.name for deletion in made.delete}) is gone
