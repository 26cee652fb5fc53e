"""Deadlines of the phases of a rollout, by the settings of the service."""

from typing import get_args

import pytest
from tests.core.rollout.rollout_inputs import NEW, OLD, SINCE_S, inputs, pod, state
from tests.support.specs.service_spec import service_spec

from penstock.core.formats.timestamps import timestamp
from penstock.core.observed.fetches import PodFetches
from penstock.core.observed.rollout_phases import Phase
from penstock.core.rollout.deadlines import (
    PHASES_WITHOUT_DEADLINE,
    adapter_deadline_s,
    phase_deadline_s,
    progress_deadline_s,
)
from penstock.core.runtimes.pod_models import FETCH_DEADLINE_S
from penstock.core.spec.canary import CanarySpec, MirrorSpec
from penstock.core.spec.rollout import EvaluationSpec, RolloutSpec


def became_ready(revision, *after_s):
    return [pod(revision, name=f"{s}", ready_at=timestamp(SINCE_S + s)) for s in after_s]


def test_each_pod_that_becomes_ready_moves_the_deadline():
    def left_s(*pods):
        given = inputs(*pods)
        return progress_deadline_s(state("Starting"), given.spec, given.observed, NEW) - SINCE_S

    assert left_s(pod(ready=False)) == 600
    assert left_s(*became_ready("b" * 8, -50)) == 600
    assert left_s(*became_ready("b" * 8, 50, 90, 70)) == 690
    assert left_s(*became_ready(OLD, 99)) == 600


def test_a_fetch_of_the_model_moves_the_deadline() -> None:
    def left_s(fetches: PodFetches) -> float:
        given = inputs(pod(ready=False, fetches=fetches))
        return progress_deadline_s(state("Starting"), given.spec, given.observed, NEW) - SINCE_S

    at = timestamp(SINCE_S + 100)
    assert left_s(PodFetches()) == 600
    assert left_s(PodFetches(running="fetch-model", since=at)) == 100 + FETCH_DEADLINE_S
    assert left_s(PodFetches(ended_at=at)) == 700
    # A fetch that fails again and again is limited by the deadline.
    assert left_s(PodFetches(failure=("NoSpace", "full"), restarts=5)) == 600


EVALUATED = RolloutSpec(
    canary=CanarySpec(max_duration_s=7200, mirror=MirrorSpec(duration_s=40)),
    evaluation=EvaluationSpec(image="test", timeout_s=50),
    scale_down_delay_s=300,
    progress_deadline_s=800,
)


@pytest.mark.parametrize(
    ("of", "pods", "limit_s"),
    [
        (state("Starting"), [], 800),
        (state("Growing"), became_ready("b" * 8, 20), 820),
        (state("Replacing", "Rolling"), [], 800),
        (state("RollingBack", "Rolling"), became_ready(OLD, 30), 830),
        (state("RollingBack"), became_ready(OLD, 30), 30),
        (state("Promoting"), [], 30),
        (state("Promoting", "BlueGreen"), [], 330),
        (state("Mirroring"), [], 40),
        (state("Judging"), [], 7250),
        (state("Stopping", "Recreate"), [], 75),
        (state("Draining"), [], 75),
        (state("Discarding"), [], 75),
    ],
)
def test_each_phase_has_its_limit(of, pods, limit_s):
    spec = service_spec(rollout=EVALUATED)
    assert phase_deadline_s(of, spec, inputs(*pods).observed) == SINCE_S + limit_s


@pytest.mark.parametrize(
    ("phase", "limit_s"),
    [
        ("Starting", 60), ("Judging", 3600), ("Growing", 60), ("Promoting", 30), ("Draining", 60),
        ("RollingBack", 30), ("Discarding", 60), ("Paused", None), ("Stable", None),
    ],
)  # fmt: skip
def test_limits_of_an_adapters_rollout(phase, limit_s):
    wanted = None if limit_s is None else SINCE_S + limit_s
    assert adapter_deadline_s(state(phase), CanarySpec()) == wanted


def test_phases_that_only_a_user_ends_have_no_limit():
    unlimited = {
        phase
        for phase in get_args(Phase)
        if phase_deadline_s(state(phase), service_spec(), inputs().observed) is None
    }
    assert unlimited == set(PHASES_WITHOUT_DEADLINE)
