"""Learned state survives a restart of the operator, and is written only after notable changes."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.scaling.by_objectives.forecast import Errors
from penstock.core.scaling.by_objectives.record import (
    NOTABLE_SHARE,
    Learned,
    from_record,
    to_record,
)
from penstock.core.scaling.by_objectives.state import ObjectivesState
from penstock.core.scaling.learned.watch import Watch
from penstock.core.scaling.rule import Decision
from penstock.core.scaling.signals import PodView


@pytest.fixture
def learned(live: Any) -> Learned:
    (*_, last) = live(5, 100)
    return Learned.of(last.state)


def test_a_new_operator_goes_on_from_it(live: Any, learned: Learned) -> None:
    (*_, last) = live(5, 100)
    back = from_record(json.loads(json.dumps(to_record(learned))))
    assert back == learned
    restored = back.restored(last.settings.rule.initial())
    assert restored.fit.model == last.state.fit.model
    assert restored.startup == last.state.startup
    assert restored.traffic.mix == last.state.traffic.mix
    assert restored.forecast.errors == last.state.forecast.errors
    assert restored.outcomes == last.state.outcomes
    assert restored.forecast.errors.watched_s > 0


def replayed(learned: Learned, ticks: list[Any]) -> Iterator[tuple[Decision, ObjectivesState]]:
    """Decisions of a new operator that starts with the learned state."""
    state = learned.restored(ticks[0].settings.rule.initial())
    for tick in ticks:
        settings = tick.settings
        decision, state = settings.rule.decide(
            settings.objectives, settings.bounds, tick.seen, state
        )
        yield decision, state


def test_a_new_operator_decides_as_the_old_one_after_a_minute(live: Any) -> None:
    """The load is learned again from arrivals; until then the number is held, as by the window."""
    ticks = list(live(5, 400, mean_arrivals=40.0))
    learned = from_record(json.loads(json.dumps(to_record(Learned.of(ticks[200].state)))))
    assert learned is not None
    rest = ticks[200:]
    desired = [decision.desired for decision, _ in replayed(learned, rest)]
    assert desired[90:] == [tick.decision.desired for tick in rest[90:]]
    assert min(desired[:90]) >= min(tick.decision.desired for tick in rest[:90])


def test_errors_of_forecasts_outlive_the_operator(live: Any) -> None:
    """The margin of a steady load stays smaller than that of the prior."""
    ticks = list(live(5, 1300, mean_arrivals=40.0))
    kept = Learned.of(ticks[1250].state)
    margins = []
    for learned in (kept, replace(kept, errors=Errors())):
        (*_, forecast) = (state.forecast for _, state in replayed(learned, ticks[1250:]))
        margins.append(forecast.upper(0.01, lead_s=34.0, noise=0.02) - forecast.now.forecast)
    assert margins[0] < 0.8 * margins[1]


def test_pods_that_were_counted_are_not_counted_again(live: Any, learned: Learned) -> None:
    (*_, last) = live(5, 100)
    restored = learned.restored(last.settings.rule.initial())
    new = PodView("new", "Ready", 0.0, 99.0, None)
    assert restored.startup.updated(last.seen.pods) == restored.startup
    after = restored.startup.updated((*last.seen.pods, new))
    assert after.times_s == (*learned.start_ups_s, 99.0)


def test_it_is_small(learned: Learned) -> None:
    assert len(json.dumps(to_record(learned))) < 8_000


def _with_a_small_matrix(watch: dict[str, Any]) -> dict[str, Any]:
    return watch | {"fit": watch["fit"] | {"covariance": [[1.0]]}}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: None,
        lambda record: [],
        lambda record: record | {"version": 1},
        lambda record: record | {"watch": {}},
        lambda record: {k: v for k, v in record.items() if k != "prompt"},
        lambda record: record | {"errors": record["errors"] | {"beyond": []}},
        lambda record: record | {"errors": record["errors"] | {"squares": [1.0]}},
        lambda record: record | {"errors": []},
        lambda record: record | {"watch": _with_a_small_matrix(record["watch"])},
    ],
)
def test_a_record_of_another_kind_is_no_record(learned: Learned, spoil: Any) -> None:
    assert from_record(spoil(to_record(learned))) is None


def test_a_record_without_cold_starts_is_still_read(learned: Learned) -> None:
    """Operators wrote such records before pods fetched models."""
    record = to_record(learned) | {"version": 10}
    found = from_record({k: v for k, v in record.items() if "cold" not in k})
    assert found == replace(learned, version=10)


def test_cold_starts_outlive_the_operator(live: Any, learned: Learned) -> None:
    cold = replace(learned, cold_start_ups_s=(300.0,), is_cold=True)
    found = from_record(json.loads(json.dumps(to_record(cold))))
    assert found is not None
    (*_, last) = live(5, 100)
    assert found.restored(last.settings.rule.initial()).startup.expected_s == 300.0
    assert cold.is_notable(learned, is_idle=True)


def test_what_is_worth_a_write(learned: Learned) -> None:
    def notable(now: Learned, *, is_idle: bool = False) -> bool:
        return now.is_notable(learned, is_idle=is_idle)

    slower = replace(
        learned, watch=Watch(replace(learned.watch.fit, model=learned.watch.fit.model.times(1.3)))
    )
    watched_s = learned.errors.watched_s
    watched = replace(learned, errors=replace(learned.errors, watched_s=2 * watched_s))
    longer = replace(learned, output=replace(learned.output, value=1.05 * learned.output.value))
    assert not notable(learned)
    assert not notable(longer)
    assert notable(slower)
    assert notable(slower, is_idle=True)
    assert notable(watched)
    assert not notable(watched, is_idle=True)
    assert notable(replace(learned, start_ups_s=(*learned.start_ups_s, 5.0)))


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("what", ["fit", "prompt", "output", "watched", "load", "peak"])
def test_a_change_is_measured_by_what_is_written(learned: Learned, what: str, side: int) -> None:
    """Up or down by 15 %, of the old value: a growth by 16 % is notable, though it is 14 % of the new."""

    def changed(share: float) -> Learned:
        factor = 1 + side * share
        fit, errors = learned.watch.fit, learned.errors
        changes: dict[str, Any] = {
            "fit": {
                "watch": replace(learned.watch, fit=replace(fit, model=fit.model.times(factor)))
            },
            "prompt": {"prompt": replace(learned.prompt, value=factor * learned.prompt.value)},
            "output": {"output": replace(learned.output, value=factor * learned.output.value)},
            "watched": {"errors": replace(errors, watched_s=factor * errors.watched_s)},
            "load": {"errors": replace(errors, load=factor * errors.load)},
            "peak": {"errors": replace(errors, peak=factor * errors.peak)},
        }
        return replace(learned, **changes[what])

    assert changed(NOTABLE_SHARE + 0.01).is_notable(learned, is_idle=False)
    assert not changed(NOTABLE_SHARE - 0.01).is_notable(learned, is_idle=False)


def test_the_first_record_is_written_when_there_is_something_to_say(live: Any) -> None:
    first, *_ = live(5, 1)
    assert not Learned.of(first.state).is_notable(None, is_idle=True)
    (*_, last) = live(5, 3)
    assert Learned.of(last.state).is_notable(None, is_idle=True)
