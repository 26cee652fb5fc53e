"""Traffic between two scrapes: arrivals, means of requests, and counters that were reset."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.learned.traffic import MEMORY_REQUESTS, Mean, Readings, Traffic
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Missing,
    Observation,
    PodView,
    attended_tokens,
)

NO_TIMES = Histogram((1.0,), (0, 0), 0.0)


def engine(**counters: Any) -> EngineReading:
    idle: dict[str, Any] = {
        "at_s": 0.0, "running": 0, "waiting": 0, "kv_usage": 0.0, "kv_capacity_tokens": 10_000,
        "prefill_tokens_pending": 0, "prompt_tokens": 0, "cached_tokens": 0, "output_tokens": 0,
        "steps": 0, "finished": 0, "output_tokens_finished": 0, "preemptions": 0,
        "ttft_s": NO_TIMES, "itl_s": NO_TIMES,
    }  # fmt: skip
    return EngineReading(**idle | counters)


def gateway(**counters: Any) -> GatewayReading:
    idle: dict[str, Any] = {
        "at_s": 0.0, "queued": 0, "queued_prompt_tokens": 0, "in_flight": 0,
        "in_flight_prefill_tokens": 0, "oldest_wait_s": 0.0, "arrivals": 0, "prompt_tokens": 0,
        "ended": 0, "output_tokens": 0, "attended_tokens": 0, "shed": 0, "failed": 0, "late": 0,
        "ttft_s": NO_TIMES, "tpot_s": NO_TIMES,
    }  # fmt: skip
    return GatewayReading(**idle | counters)


def observe(
    *engines: EngineReading | None, at_gateway: GatewayReading | Missing | None = None
) -> Observation:
    """An observation of these engines. None: an engine that is starting."""
    pods = tuple(
        PodView(f"pod-{i}", "Starting" if e is None else "Ready", 0.0, 0.0, e)
        for i, e in enumerate(engines)
    )
    return Observation(2.0, pods, len(pods), at_gateway)


def traffic_after(*observations: Observation) -> Traffic:
    readings, traffic = Readings(), Traffic()
    for seen in observations:
        traffic = traffic.updated(readings, seen, readings.pairs(seen).values())
        readings = readings.updated(seen)
    return traffic


@pytest.mark.parametrize(
    ("before", "now", "came"),
    [
        ((100, 50_000), (130, 62_000), (30, 12_000)),
        ((100, 50_000), (100, 50_000), (0, 0)),
        # A gateway that began anew has counted from 0.
        ((100, 50_000), (7, 3_000), (7, 3_000)),
        ((100, 50_000), (99, 49_000), (99, 49_000)),
        ((100, 50_000), (0, 0), (0, 0)),
        # Fewer tokens with more requests cannot be.
        ((100, 50_000), (101, 40_000), (1, 0)),
    ],
)
def test_arrivals_are_what_the_gateway_counted_since(
    before: tuple[int, int], now: tuple[int, int], came: tuple[int, int]
) -> None:
    first, second = (gateway(arrivals=a, prompt_tokens=t) for a, t in (before, now))
    traffic = traffic_after(observe(at_gateway=first), observe(at_gateway=second))
    assert (traffic.arrivals, traffic.prompt_tokens) == came
    assert traffic.prompt == Mean().updated(came[1], came[0])


def test_the_first_look_counts_nothing() -> None:
    traffic = traffic_after(observe(at_gateway=gateway(arrivals=100, prompt_tokens=50_000)))
    assert (traffic.arrivals, traffic.prompt_tokens) == (0, 0)
    assert traffic.mix is None


def test_without_a_gateway_what_engines_accepted_has_arrived() -> None:
    """Waiting and running requests are counted once, with any outcome."""
    before = engine(
        finished=10, running=4, waiting=3, prompt_tokens=900, prefill_tokens_pending=300
    )
    now = engine(finished=13, running=5, waiting=7, prompt_tokens=1500, prefill_tokens_pending=700)
    traffic = traffic_after(observe(before, before), observe(now, now))
    assert (traffic.arrivals, traffic.prompt_tokens) == (2 * 8, 2 * 1000)
    # Requests that run instead of wait, and end instead of run, are no arrivals.
    moved = engine(
        finished=13, running=3, waiting=1, prompt_tokens=1000, prefill_tokens_pending=200
    )
    traffic = traffic_after(observe(before), observe(moved))
    assert (traffic.arrivals, traffic.prompt_tokens) == (0, 0)


def test_a_gateway_that_cannot_be_read_says_nothing_of_arrivals() -> None:
    lost = Missing("gateway", "ReadTimeout")
    now = engine(finished=3, running=5, prompt_tokens=1500)
    traffic = traffic_after(observe(engine(), at_gateway=gateway()), observe(now, at_gateway=lost))
    assert (traffic.arrivals, traffic.prompt_tokens) == (0, 0)


@pytest.mark.parametrize("counter", ["finished", "prompt_tokens", "cached_tokens", "output_tokens"])
def test_an_engine_whose_counters_went_back_is_no_pair(counter: str) -> None:
    """A restart is detected by one decreased counter: the others may exceed their old values."""
    before = engine(finished=10, prompt_tokens=100, cached_tokens=50, output_tokens=100)
    grown = engine(finished=11, prompt_tokens=101, cached_tokens=51, output_tokens=101)
    assert list(Readings().updated(observe(before)).pairs(observe(grown)).values()) == [
        (before, grown)
    ]
    for less in (1, 10):
        restarted = replace(grown, **{counter: getattr(before, counter) - less})
        assert Readings().updated(observe(before)).pairs(observe(restarted)) == {}


def test_means_are_of_what_the_gateway_saw_end() -> None:
    """5 requests of 100 and then 3 of 40 tokens, each attended to by its own prompt."""
    attended = [attended_tokens(500, 100), attended_tokens(200, 40)]
    first = gateway(ended=5, output_tokens=500, attended_tokens=5 * attended[0])
    second = gateway(ended=8, output_tokens=620, attended_tokens=5 * attended[0] + 3 * attended[1])
    traffic = traffic_after(*(observe(at_gateway=g) for g in (gateway(), first, second)))
    assert traffic.answered == Mean(pytest.approx(620 / 8), 8)
    assert traffic.attended.value == pytest.approx((5 * attended[0] + 3 * attended[1]) / 8)
    # A gateway whose counters were reset is skipped.
    restarted = gateway(ended=2, output_tokens=900, attended_tokens=10)
    again = traffic_after(*(observe(at_gateway=g) for g in (gateway(), first, second, restarted)))
    assert (again.answered, again.attended) == (traffic.answered, traffic.attended)


def test_the_share_that_misses_the_cache_is_weighted_by_requests() -> None:
    """1000 tokens of which 250 were cached, then 500 of which all were."""
    observations = [
        observe(engine(), at_gateway=gateway()),
        observe(
            engine(prompt_tokens=1000, cached_tokens=250),
            at_gateway=gateway(arrivals=10, prompt_tokens=1000),
        ),
        observe(
            engine(prompt_tokens=1500, cached_tokens=750),
            at_gateway=gateway(arrivals=15, prompt_tokens=1500),
        ),
    ]
    assert traffic_after(*observations).miss == Mean(
        pytest.approx((1000 - 250) / 1500), pytest.approx(15)
    )


def test_old_requests_fade_from_a_mean() -> None:
    mean = Mean()
    for _ in range(1000):
        mean = mean.updated(100.0, 1)
    assert mean.value == pytest.approx(100.0)
    # After as many as are remembered, the new ones are half of it.
    assert mean.updated(0.0, MEMORY_REQUESTS).value == pytest.approx(50.0)
    assert mean.updated(0.0, 0) == replace(mean, weight=MEMORY_REQUESTS)
    assert Mean().updated(500.0, 0) == Mean()
