"""Loads and settings that would change a scaling decision."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.scaling.by_objectives.what_if import (
    loads_that_change_decision,
    settings_that_change_decision,
    under_load,
    with_settings,
)
from penstock.core.scaling.what_if import with_settings as under_settings
from penstock.core.spec.objectives import Objectives


@pytest.fixture
def tick(live: Any) -> Any:
    """A service at rest at some replicas."""
    ticks = list(live(3, 200, mean_arrivals=60.0))
    at_rest = ("Steady", "ScaleDownDelayed")
    last = next(tick for tick in reversed(ticks) if tick.decision.code in at_rest)
    assert 1 < last.decision.desired < 10
    return last


def test_more_load_asks_for_more_and_less_for_fewer(tick: Any) -> None:
    number = under_load(tick, 1.0).desired
    more, less = loads_that_change_decision(tick)
    assert more.what.endswith("more load")
    assert more.decision.desired > number
    assert less.what.endswith("less load")
    assert less.decision.desired < number


def test_less_load_counts_as_if_it_had_lasted_though_a_scale_up_was_just_now(tick: Any) -> None:
    grown = replace(tick, state=replace(tick.state, grew_s=tick.seen.now_s))
    *_, less = loads_that_change_decision(grown)
    assert less.decision.desired == under_load(tick, 1.0).desired - 1


def test_the_need_grows_as_the_load_does(tick: Any) -> None:
    needs = {
        factor: next(
            float(entry.note.rpartition(" ")[2])
            for entry in under_load(tick, factor).trail
            if entry.step == "need"
        )
        for factor in (0.5, 1.0, 2.0, 4.0)
    }
    for factor, need in needs.items():
        assert need == pytest.approx(factor * needs[1.0], rel=0.1)


@pytest.mark.parametrize(
    ("objectives", "tried"), [(Objectives(ttft_s=0.2), "ttft="), (Objectives(tpot_s=0.04), "tpot=")]
)
def test_an_objective_that_is_not_set_is_not_tried(
    tick: Any, objectives: Objectives, tried: str
) -> None:
    alone = replace(tick, settings=replace(tick.settings, objectives=objectives))
    changes = [change.what for change in settings_that_change_decision(alone)]
    assert {what[:5] for what in changes if what[:5] in ("ttft=", "tpot=")} <= {tried}
    assert under_load(alone, 4.0).desired >= under_load(alone, 1.0).desired >= 1


def test_a_bound_below_the_number_changes_it(tick: Any) -> None:
    number = tick.decision.desired
    at_bound = replace(tick, settings=with_settings(tick.settings, {"maxReplicas": str(number)}))
    changes = {c.what: c.decision.desired for c in settings_that_change_decision(at_bound)}
    assert changes[f"maxReplicas={number - 1}"] == number - 1


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"maxReplicas": "8"}, "bounds.max_replicas", 8),
        ({"minReplicas": "2"}, "bounds.min_replicas", 2),
        ({"ttft": "500ms"}, "objectives.ttft_s", 0.5),
        ({"tpot": "1s"}, "objectives.tpot_s", 1.0),
        ({"attainment": "0.9"}, "objectives.attainment", 0.9),
        ({"scaleDownDelay": "5m"}, "rule.calm_s", 300.0),
    ],
)
def test_settings_by_their_names_in_yaml(
    tick: Any, given: dict[str, str], field: str, value: float
) -> None:
    found: Any = with_settings(tick.settings, given)
    for name in field.split("."):
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"replicas": "3"}, "no setting 'replicas'"),
        ({"maxReplicas": "0"}, "minReplicas must be"),
        ({"maxReplicas": "many"}, "must be a (whole )?number"),
        ({"ttft": "2"}, "is not a duration"),
        ({"ttft": "0s"}, "must not be zero"),
        ({"attainment": "1"}, "below 1"),
    ],
)
def test_a_setting_that_cannot_be(tick: Any, given: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        with_settings(tick.settings, given)


def test_what_is_tried_is_decided_without_the_scale_up_delay(tick: Any) -> None:
    """A recorded decision waits for it; the user asks for the number after that."""
    needed = next(each.replicas for each in tick.decision.trail if each.step == "need")
    few = replace(tick, seen=replace(tick.seen, provisioned=needed - 2))
    assert few.decide_again().desired == few.seen.provisioned
    for decision in (under_settings(few, {}), under_load(few, 1.0)):
        assert (decision.desired, decision.code) == (needed, "ScaleUp")
    at_most = str(few.seen.provisioned + 1)
    assert under_settings(few, {"maxReplicas": at_most}).desired == int(at_most)
