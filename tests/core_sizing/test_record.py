"""Learned state survives a restart of the operator, and is written only after notable changes."""

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.scaling.by_objectives.idle_gap import IdleGap
from penstock.core.scaling.by_objectives.record import (
    NOTABLE_SHARE,
    Learned,
    from_record,
    to_record,
)
from penstock.core.scaling.by_objectives.watch import Watch
from penstock.core.scaling.signals import PodView


@pytest.fixture
def learned(live: Any) -> Learned:
    (*_, last) = live(5, 100)
    return Learned.of(last.state)


def test_a_new_operator_goes_on_from_it(live: Any, learned: Learned) -> None:
    (*_, last) = live(5, 100)
    back = from_record(json.loads(json.dumps(to_record(learned))))
    assert back == learned
    restored = back.restored(last.settings.rule.initial(), last.seen.now_s)
    assert restored.fit.model == last.state.fit.model
    assert restored.startup == last.state.startup
    assert restored.traffic.mix == last.state.traffic.mix
    # The demand goes on from it too: its first look keeps what was learned of surprises.
    surprises = restored.demand.after(1.0, 0.0, 1.0).surprises
    for kept, known in zip(surprises, last.state.demand.surprises, strict=True):
        assert kept == replace(known, at_s=kept.at_s)


def decided(learned: Learned, ticks: list[Any]) -> list[int]:
    """Desired replicas in each tick, decided by a new operator that starts with the learned state."""
    state = learned.restored(ticks[0].settings.rule.initial(), ticks[0].seen.now_s)
    desired = []
    for tick in ticks:
        settings = tick.settings
        decision, state = settings.rule.decide(
            settings.objectives, settings.bounds, tick.seen, state
        )
        desired.append(decision.desired)
    return desired


def test_a_silence_is_waited_out_by_the_next_operator(live: Any) -> None:
    """An hour of load, four minutes of nothing, and the load again."""
    silent = range(1700, 1810)
    ticks = list(live(5, 1840, mean_arrivals=40.0, silent=silent))
    for look in (silent.start + 30, silent.stop - 1):
        learned = from_record(json.loads(json.dumps(to_record(Learned.of(ticks[look].state)))))
        assert learned is not None
        rest = ticks[look:]
        assert decided(learned, rest) == [tick.decision.desired for tick in rest]
    rest = ticks[silent.start + 30 :]
    assert min(decided(replace(learned, silence=None), rest)) < rest[0].decision.desired


def test_a_silence_that_was_waited_out_meanwhile_is_none(live: Any) -> None:
    (*_, last) = live(5, 1750, mean_arrivals=40.0, silent=range(1700, 1750))
    learned = Learned.of(last.state)
    assert learned.silence is not None
    fresh, until_s = last.settings.rule.initial(), learned.silence.until_s
    assert learned.restored(fresh, until_s - 1.0).demand.level == learned.level
    assert learned.restored(fresh, until_s).demand == learned.demand


def test_pods_that_were_counted_are_not_counted_again(live: Any, learned: Learned) -> None:
    (*_, last) = live(5, 100)
    restored = learned.restored(last.settings.rule.initial(), last.seen.now_s)
    new = PodView("new", "Ready", 0.0, 99.0, None)
    assert restored.startup.after(last.seen.pods) == restored.startup
    after = restored.startup.after((*last.seen.pods, new))
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
        lambda record: record | {"demand": record["demand"] | {"surprises": []}},
        lambda record: record | {"demand": record["demand"] | {"lost": []}},
        lambda record: record | {"watch": _with_a_small_matrix(record["watch"])},
    ],
)
def test_a_record_of_another_kind_is_no_record(learned: Learned, spoil: Any) -> None:
    assert from_record(spoil(to_record(learned))) is None


def test_what_is_worth_a_write(learned: Learned) -> None:
    def notable(now: Learned, *, is_idle: bool = False) -> bool:
        return now.is_notable(learned, is_idle=is_idle)

    slower = replace(
        learned, watch=Watch(replace(learned.watch.fit, model=learned.watch.fit.model.times(1.3)))
    )
    noisier = replace(learned, demand=replace(learned.demand, noise=2 * learned.demand.noise))
    longer = replace(learned, output=replace(learned.output, value=1.05 * learned.output.value))
    assert not notable(learned)
    assert not notable(longer)
    assert notable(slower)
    assert notable(slower, is_idle=True)
    assert notable(noisier)
    assert not notable(noisier, is_idle=True)
    assert notable(replace(learned, start_ups_s=(*learned.start_ups_s, 5.0)))
    assert notable(replace(learned, silence=IdleGap(100.0, 5.0), level=2.0), is_idle=True)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("what", ["fit", "prompt", "output", "noise"])
def test_a_change_is_measured_by_what_is_written(learned: Learned, what: str, side: int) -> None:
    """Up or down by 15 %, of the old value: a growth by 16 % is notable, though it is 14 % of the new."""

    def changed(share: float) -> Learned:
        factor = 1 + side * share
        fit, demand = learned.watch.fit, learned.demand
        changes: dict[str, Any] = {
            "fit": {
                "watch": replace(learned.watch, fit=replace(fit, model=fit.model.times(factor)))
            },
            "prompt": {"prompt": replace(learned.prompt, value=factor * learned.prompt.value)},
            "output": {"output": replace(learned.output, value=factor * learned.output.value)},
            "noise": {"demand": replace(demand, noise=factor * demand.noise)},
        }
        return replace(learned, **changes[what])

    assert changed(NOTABLE_SHARE + 0.01).is_notable(learned, is_idle=False)
    assert not changed(NOTABLE_SHARE - 0.01).is_notable(learned, is_idle=False)


def test_the_first_record_is_written_when_there_is_something_to_say(live: Any) -> None:
    first, *_ = live(5, 1)
    assert not Learned.of(first.state).is_notable(None, is_idle=True)
    (*_, last) = live(5, 3)
    assert Learned.of(last.state).is_notable(None, is_idle=True)
