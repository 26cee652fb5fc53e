"""Correction of the need by late requests that the load does not explain."""

import math

import pytest
from tests.core.scaling.by_objectives.world import STARTUP_S, World, needed, note

from penstock.core.scaling.by_objectives.correction import (
    FADING_S,
    LATE_BY_CHANCE,
    MAX_STEP,
    MIN_LATE,
    MIN_WINDOW_S,
    MOST_CORRECTION,
    Correction,
)
from penstock.core.scaling.by_objectives.outcomes import Outcomes
from penstock.core.scaling.rule import Bounds

ALLOWED = 0.01


def after(
    seconds: int, ended: Outcomes, correction: Correction, *, is_explained: bool = False
) -> Correction:
    """The correction after updates every second. ended: outcomes of each."""
    begin_s = int(correction.at_s) or 1000
    for now_s in range(begin_s + 1, begin_s + seconds + 1):
        correction = correction.updated(
            float(now_s), ended, is_explained=is_explained, window_s=100.0, allowed=ALLOWED
        )
    return correction


CALM = after(1, Outcomes(), Correction(), is_explained=True)
SETTLED_S, WINDOW_S = int(MIN_WINDOW_S), 100


@pytest.mark.parametrize(
    ("late", "factor"),
    [
        (0.5, 1 + MAX_STEP),
        (0.12, 1.12),
        (LATE_BY_CHANCE * ALLOWED, 1.0),
        (0.0, 1.0),
    ],
)
def test_step_of_a_window_is_the_fraction_of_late_requests(late: float, factor: float) -> None:
    ended = Outcomes(requests=10.0, late=10 * late)
    assert after(SETTLED_S + WINDOW_S - 1, ended, CALM).factor == 1.0
    assert after(SETTLED_S + WINDOW_S, ended, CALM).factor == pytest.approx(factor)


def test_few_late_requests_are_chance() -> None:
    ended = Outcomes(requests=0.1, late=(MIN_LATE - 1) / WINDOW_S)
    assert after(SETTLED_S + WINDOW_S, ended, CALM).factor == 1.0


def test_late_requests_count_only_after_the_load_has_been_within_the_replicas() -> None:
    late = Outcomes(requests=10.0, late=10.0)
    settled = after(SETTLED_S, late, after(500, late, CALM, is_explained=True))
    assert (settled.requests, settled.late, settled.factor) == (0.0, 0.0, 1.0)
    assert after(1, late, after(50, late, settled), is_explained=True).requests == 0.0


def test_correction_is_bounded_and_fades() -> None:
    high = after(SETTLED_S + 5 * WINDOW_S, Outcomes(requests=10.0, late=10.0), CALM)
    assert high.factor == pytest.approx(MOST_CORRECTION, abs=0.05)
    faded = after(int(FADING_S), Outcomes(requests=10.0), high)
    assert faded.factor == pytest.approx(1 + (high.factor - 1) / math.e)


def test_steadily_late_service_grows_until_the_correction_is_at_its_limit() -> None:
    """The load is within the replicas all the while, so only the correction adds any."""
    world = World(4, Bounds(1, 20), late=0.2)
    world.runs(STARTUP_S, 12.0)
    assert world.state.correction.factor == 1.0
    world.runs(3600, 12.0)
    assert world.replicas == pytest.approx(MOST_CORRECTION * needed(12.0), rel=0.2)
    assert " for late requests that the load does not explain: need" in note(world.decision, "need")


def test_late_requests_at_the_maximum_correct_nothing() -> None:
    world = World(4, Bounds(4, 4), late=0.5)
    world.runs(3600, 12.0)
    assert world.state.correction.factor == 1.0
