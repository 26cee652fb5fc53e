"""Missing replicas are inferred from a queue: too few slots, or too little time."""

from dataclasses import replace

import pytest

from penstock.core.scaling.by_objectives.capacity import Mix
from penstock.core.scaling.by_objectives.iteration import IterationModel
from penstock.core.scaling.by_objectives.queue import BRIEF, MEMORY_S, PRESSED_S, Pressure, Queue
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Histogram,
    Observation,
    PodView,
)

MODEL = IterationModel(0.02, 1e-4, 1e-4, 1e-7)
MIX = Mix(200, 200, 100)
MAX_NUM_SEQS = 16
KV_TOKENS = 10_000
TTFT_S, STARTUP_S = 1.0, 100.0
NOTHING = Histogram((1.0,), (0, 0), 0.0)


def engine(running: int, waiting: int = 0, kv_usage: float = 0.3) -> EngineReading:
    return EngineReading(
        at_s=0.0, running=running, waiting=waiting, kv_usage=kv_usage, kv_capacity_tokens=KV_TOKENS,
        prefill_tokens_pending=0, prompt_tokens=0, cached_tokens=0, output_tokens=0, steps=0,
        finished=0, output_tokens_finished=0, preemptions=0, ttft_s=NOTHING, itl_s=NOTHING,
    )  # fmt: skip


def gateway(queued: int, oldest_wait_s: float = 0.0) -> GatewayReading:
    return GatewayReading(
        at_s=0.0, queued=queued, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
        oldest_wait_s=oldest_wait_s, arrivals=0, prompt_tokens=0, ended=0, output_tokens=0,
        attended_tokens=0, shed=0, failed=0, late=0, ttft_s=NOTHING, tpot_s=NOTHING,
    )  # fmt: skip


def queue(engines: list[EngineReading], at_gateway: GatewayReading | None = None) -> Queue:
    pods = tuple(PodView(f"p{i}", "Ready", 0.0, 0.0, e) for i, e in enumerate(engines))
    seen = Observation(0.0, pods, len(pods), at_gateway)
    return Queue.seen(seen, MODEL, MIX, MAX_NUM_SEQS)


FULL, HALF = engine(16), engine(8)


@pytest.mark.parametrize(
    ("engines", "at_gateway", "is_full"),
    [
        ([engine(16, waiting=5)], None, True),
        ([FULL], gateway(5), True),
        ([engine(15)], gateway(5), True),  # one has just ended, and its place is not taken yet
        ([engine(8, waiting=5, kv_usage=0.9)], None, True),  # no room in the KV cache
        ([engine(8, waiting=5, kv_usage=0.88)], None, True),
        ([engine(8, waiting=5)], None, False),
        ([FULL, HALF], gateway(5), False),  # the other one takes them
        ([FULL, HALF], gateway(9), True),
        ([FULL], gateway(0), False),
        ([], gateway(5), True),
    ],
)
def test_full_is_who_has_fewer_places_than_wait(
    engines: list[EngineReading], at_gateway: GatewayReading | None, *, is_full: bool
) -> None:
    assert queue(engines, at_gateway).is_full == is_full


def test_an_engine_has_as_many_places_as_it_reports() -> None:
    reported = replace(HALF, max_num_seqs=12)
    assert queue([HALF]).free == 8
    assert queue([reported]).free == 4
    assert queue([replace(reported, max_num_seqs=64)]).free > 8


@pytest.mark.parametrize("waiting", [1, 8, 40])
def test_a_queue_drains_as_answers_end(waiting: int) -> None:
    """Running answers end at the rate of their number divided by their duration (Little's law)."""
    found = queue([engine(16, waiting=waiting)])
    step_s = MODEL.time_s(16 / MIX.output_tokens * MIX.uncached_tokens, 16, 16 * MIX.kv_tokens)
    assert found.drain_s == pytest.approx(waiting / (16 / (MIX.output_tokens * step_s)))


def pressed(found: Queue, seconds: float) -> tuple[Pressure, float]:
    pressure, now_s = Pressure(), 0.0
    while now_s <= seconds:
        pressure = pressure.after(found, now_s, TTFT_S, STARTUP_S)
        now_s += 2.0
    return pressure, now_s - 2.0


@pytest.mark.parametrize(
    ("found", "after_s"),
    [
        (queue([engine(16, waiting=20)]), 2),  # needs longer than a second for them
        (queue([FULL], gateway(20)), 2),
        (queue([FULL], gateway(5, oldest_wait_s=1.5)), 2),
        (queue([FULL], gateway(4, oldest_wait_s=1.5)), None),  # a burst, gone before a pod starts
        (queue([engine(16, waiting=2)]), None),  # gone in a third of a second: others wait then
        (queue([engine(15, waiting=40), HALF]), 2),
        (queue([engine(4, waiting=10)]), PRESSED_S),
        (queue([engine(8, waiting=2)]), None),
        (queue([FULL, FULL]), None),
    ],
)
def test_when_a_queue_asks(found: Queue, after_s: float | None) -> None:
    def asks(seconds: float) -> bool:
        pressure, now_s = pressed(found, seconds)
        lacks_places = pressure.lacks_places(found, now_s, TTFT_S)
        return lacks_places or pressure.lacks_time(found, now_s, TTFT_S)

    assert asks(PRESSED_S + 2) == (after_s is not None)
    if after_s is not None:
        assert asks(after_s + 2)
        assert not asks(after_s - 2)


@pytest.mark.parametrize(
    ("drain_s", "is_queue"), [(BRIEF * TTFT_S, False), (1.01 * BRIEF * TTFT_S, True)]
)
def test_a_queue_takes_more_than_a_part_of_the_objective(*, drain_s: float, is_queue: bool) -> None:
    found = replace(queue([engine(16, waiting=20)]), drain_s=drain_s)
    pressure = Pressure().after(found, 1.0, TTFT_S, STARTUP_S)
    assert (pressure.since_s is not None) == is_queue
    assert (pressure.wave.since_s is not None) == is_queue


def test_a_queue_that_went_begins_anew() -> None:
    found = queue([engine(16, waiting=20)])
    pressure, now_s = pressed(found, 60)
    assert pressure.is_lasting(now_s)
    after = pressure.after(gone(found), now_s, TTFT_S, STARTUP_S)
    assert after == Pressure(wave=after.wave)


def gone(found: Queue) -> Queue:
    return replace(found, waiting=0, drain_s=0.0)


LONG_QUEUE = queue([engine(16, waiting=20)])


@pytest.mark.parametrize(
    ("found", "current", "more"),
    [
        (LONG_QUEUE, 1, [1, 1, 1, 1]),
        (LONG_QUEUE, 8, [2, 4, 8, 8]),  # never more than there are
        (LONG_QUEUE, 10, [3, 5, 10, 10]),
        (queue([engine(16, waiting=2)]), 16, [2, 2, 2, 2]),  # in proportion to the running requests
        (queue([], gateway(5)), 8, [2, 4, 8, 8]),
    ],
)
def test_a_queue_that_stays_asks_for_twice_as_much_each_time(
    found: Queue, current: int, more: list[int]
) -> None:
    pressure, now_s = Pressure(), 0.0
    for expected in more:
        assert pressure.more(found, current) == expected
        pressure = pressure.answered(now_s, found)
        for is_starting in [True] * 10 + [False] * 10:
            now_s += 2.0
            pressure = pressure.after(found, now_s, TTFT_S, STARTUP_S, is_starting=is_starting)


@pytest.mark.parametrize("is_starting", [True, False])
def test_a_queue_that_went_begins_with_a_quarter_again(*, is_starting: bool) -> None:
    pressure = Pressure().answered(0.0, LONG_QUEUE)
    assert pressure.more(LONG_QUEUE, 8) == 4
    pressure = pressure.after(gone(LONG_QUEUE), 2.0, TTFT_S, STARTUP_S, is_starting=is_starting)
    assert pressure.more(LONG_QUEUE, 8) == 2


@pytest.mark.parametrize(
    ("went_s", "asks_s"), [([], PRESSED_S), ([20.0], PRESSED_S), ([90.0], 90.0)]
)
def test_free_places_or_not_a_queue_outlasts_those_that_went(
    went_s: list[float], asks_s: float
) -> None:
    pressure, from_s = waves(went_s)
    slow, now_s = queue([engine(4, waiting=10)]), from_s
    while not pressure.lacks_time(slow, now_s, TTFT_S):
        assert now_s - from_s <= asks_s + 2.0
        pressure = pressure.after(slow, now_s, TTFT_S, STARTUP_S)
        now_s += 2.0
    assert now_s - from_s >= asks_s


def waves(lasting_s: list[float]) -> tuple[Pressure, float]:
    """Full queues one after the other, each gone for ten seconds."""
    pressure, now_s = Pressure(), 0.0
    for seconds in lasting_s:
        end_s = now_s + seconds
        while now_s < end_s:
            pressure = pressure.after(LONG_QUEUE, now_s, TTFT_S, STARTUP_S)
            now_s += 2.0
        for _ in range(5):
            pressure = pressure.after(gone(LONG_QUEUE), now_s, TTFT_S, STARTUP_S)
            now_s += 2.0
    return pressure, now_s


@pytest.mark.parametrize(
    ("before_s", "patience_s"),
    [
        ([], 2.0),
        ([20.0], 20.0),
        ([20.0, 40.0, 10.0], 40.0),
        ([110.0], 2.0),  # a pod could have come: who knows what it went by
        ([20.0, 110.0], 20.0),
    ],
)
def test_a_queue_is_given_as_long_as_those_that_went_by_themselves(
    before_s: list[float], patience_s: float
) -> None:
    pressure, from_s = waves(before_s)
    now_s = from_s
    while not pressure.lacks_places(LONG_QUEUE, now_s, TTFT_S):
        now_s += 2.0
        assert now_s - from_s < PRESSED_S
        pressure = pressure.after(LONG_QUEUE, now_s, TTFT_S, STARTUP_S)
    assert now_s - from_s == pytest.approx(patience_s, abs=4.0)


def test_queues_that_went_are_forgotten() -> None:
    pressure, now_s = waves([20.0])
    much_later_s = now_s + MEMORY_S
    assert pressure.after(LONG_QUEUE, now_s, TTFT_S, STARTUP_S).wave.longest_s > 0
    assert pressure.after(LONG_QUEUE, much_later_s, TTFT_S, STARTUP_S).wave.longest_s == 0


def test_a_queue_that_starting_pods_outlive_is_known_too() -> None:
    """The replica that was requested when the queue began is still starting when the queue has drained."""
    pressure, now_s = Pressure(), 0.0
    for found in (*[LONG_QUEUE] * 10, gone(LONG_QUEUE)):
        pressure = pressure.after(found, now_s, TTFT_S, STARTUP_S, is_starting=True)
        now_s += 2.0
    assert pressure.wave.longest_s == 20.0


@pytest.mark.parametrize(("engines", "is_lasting"), [(1, True), (4, False)])
def test_a_few_that_wait_keep_no_large_fleet(engines: int, is_lasting: bool) -> None:
    """Three waiting requests are a queue for one engine. With four engines each waits only briefly."""
    found = queue([engine(12, waiting=3), *[engine(12)] * (engines - 1)])
    pressure, now_s = pressed(found, 60)
    assert pressure.is_lasting(now_s) == is_lasting
