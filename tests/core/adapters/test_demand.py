"""Estimates of demand from counters of gateways."""

import pytest

from penstock.core.adapters.demand import AdapterCounts, DemandState, estimate_demand
from penstock.core.adapters.load_failures import (
    LoadFailure,
    after_break,
    after_failure,
    after_success,
    blocked,
    keep_recent,
)


def state_after(counts: list[AdapterCounts], tick_s: float = 2.0) -> DemandState:
    state = None
    for index, each in enumerate(counts):
        state = estimate_demand({"a@1": each}, state, index * tick_s)
    assert state is not None
    return state


def test_the_average_of_steady_arrivals_is_their_rate() -> None:
    state = state_after([AdapterCounts(arrivals=6 * i) for i in range(3000)])
    assert state.demand["a@1"].requests_per_s == pytest.approx(3.0, rel=0.01)


def test_requests_in_flight_count_at_once_and_fall_slowly() -> None:
    state = state_after([AdapterCounts(), AdapterCounts(in_flight=15, waiting=5)])
    assert state.demand["a@1"].busy == 20
    state = estimate_demand({"a@1": AdapterCounts()}, state, 32.0)
    assert 10 < state.demand["a@1"].busy < 15


def test_counters_that_fell_start_at_zero() -> None:
    down = state_after([AdapterCounts(arrivals=100), AdapterCounts(arrivals=4)])
    up = state_after([AdapterCounts(), AdapterCounts(arrivals=4)])
    assert down.demand == up.demand


def test_the_first_counters_are_no_arrivals() -> None:
    assert state_after([AdapterCounts(arrivals=1000)]).demand["a@1"].requests_per_s == 0


def test_the_first_estimate_is_what_statuses_show() -> None:
    """A new gateway has seen no requests, and must not take the most popular copy for the least one."""
    shown = {"a@1": 2.0, "b@1": 0.5}
    state = estimate_demand({"a@1": AdapterCounts(arrivals=9, in_flight=1)}, None, 0.0, shown)
    demand = {name: (each.requests_per_s, each.in_flight) for name, each in state.demand.items()}
    assert demand == {"a@1": (2.0, 1), "b@1": (0.5, 0)}
    later = estimate_demand({"a@1": AdapterCounts(arrivals=9)}, state, 300.0, {"a@1": 9.0})
    assert later.demand["a@1"].requests_per_s == pytest.approx(2.0 / 2.718, rel=0.01)


def test_an_adapter_without_counters_or_demand_is_forgotten() -> None:
    state = state_after([AdapterCounts(), AdapterCounts(arrivals=1)])
    for tick in range(2, 4000):
        state = estimate_demand({}, state, tick * 2.0)
    assert state.demand == {}


def test_failed_loads_are_retried_at_growing_intervals() -> None:
    failures: dict[str, LoadFailure] = {}
    for pause_s in (5, 10, 20):
        failures = after_failure(failures, "a@1", "rank 64 is above 16", 100.0)
        assert blocked(failures, 100.0 + pause_s - 0.1) == {"a@1"}
        assert blocked(failures, 100.0 + pause_s) == set()
    for _ in range(20):
        failures = after_failure(failures, "a@1", "rank 64 is above 16", 100.0)
    assert failures["a@1"].retry_at_s == 400.0
    assert after_success(failures, "a@1") == {}


def test_the_first_load_that_breaks_off_blocks_nothing() -> None:
    failures = after_break({}, "a@1", "the engine ended", 100.0)
    assert blocked(failures, 100.0) == set()
    failures = after_break(failures, "a@1", "the engine ended", 100.0)
    assert failures == {"a@1": LoadFailure("the engine ended", 1, 105.0)}
    assert after_break(failures, "a@1", "the engine ended", 105.0)["a@1"].retry_at_s == 115.0


def test_failures_of_what_nothing_uses_are_bounded_in_time_and_number() -> None:
    failures = {number: LoadFailure("bad", 1, number) for number in range(2000)}
    assert keep_recent(failures, lambda _: True, 1e9) == failures
    kept = keep_recent(failures, lambda number: number == 0, 3600.0 + 1500.0)
    assert kept.keys() == {0, *range(1501, 2000)}
    newest = keep_recent(failures, lambda number: number == 0, 0.0)
    assert newest.keys() == {0, *range(1000, 2000)}


def test_surplus_failures_are_forgotten_of_the_namespace_with_the_most() -> None:
    ages = {"few": range(10), "some": range(100, 600), "many": range(1000, 3000)}
    failures = {
        (namespace, number): LoadFailure("bad", 1, number)
        for namespace, numbers in ages.items()
        for number in numbers
    }
    kept = keep_recent(failures, lambda _: False, 0.0, namespace_of=lambda key: key[0])
    assert kept.keys() == {
        *(("few", number) for number in range(10)),
        *(("some", number) for number in range(105, 600)),
        *(("many", number) for number in range(2505, 3000)),
    }
