"""Plans that keep what the requests so far needed, and the bound for rules that never run more.

The load of most tests rises from what one replica serves to what two serve.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
from benchmarks.simulator.panel.load import MAX_REPLICAS, Load
from benchmarks.simulator.panel.lower_bound import STARTUP_SHARE
from benchmarks.simulator.panel.no_speculation import (
    FACTORS,
    FixedRun,
    Late,
    bound,
    fixed_runs,
    orders_of,
    plans_of,
    simulated_plan,
)
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.sim.scenario import Scenario, Service
from penstock.sim.workload.generate import Closed, Rate
from penstock.sim.workload.lengths import Fixed, Mix, RequestClass

STEP_S, DURATION_S = 60.0, 300.0
MIX = Mix(classes=(RequestClass(prompt=Fixed(tokens=200), output=Fixed(tokens=20)),))
# Requests/s before the step, of about 7.6 that a replica serves, and twice as many after it.
RPS = 6.0


def load_of(workload: Rate | Closed, startup_s: float = 100.0, initial_replicas: int = 1) -> Load:
    service = Service(
        profile="qwen2.5-0.5b-cpu", workload=workload, ttft_s=2.0, tpot_s=0.3, attainment=0.95,
        initial_replicas=initial_replicas, max_replicas=MAX_REPLICAS, startup_s=startup_s,
    )  # fmt: skip
    scenario = Scenario(name="step", duration_s=DURATION_S, tail_s=60, services=(service,))
    return Load(1, "step", "fixed", 0.1, 1.5, 1.0, scenario)


def step(startup_s: float = 100.0, initial_replicas: int = 1) -> Load:
    points = ((0.0, RPS), (STEP_S, RPS), (STEP_S, 2 * RPS), (DURATION_S, 2 * RPS))
    return load_of(Rate(points=points, cv=0.1, mixes=(MIX,)), startup_s, initial_replicas)


def each_second(replicas: int, late_from_s: int, late_to_s: int = 300) -> FixedRun:
    """Run with an arrival each second for 300 s, late from one time to another and certainly so 1 s later."""
    late = (Late(at_s, at_s + 1.0, shows_need=True) for at_s in range(late_from_s, late_to_s))
    return FixedRun(replicas, tuple(map(float, range(300))), tuple(late))


def test_requests_are_late_from_the_need_until_a_start_later() -> None:
    runs = [each_second(1, 60), each_second(2, 300)]
    assert orders_of(runs, 1.0) == [(0.0, 1), (60.0, 2)]
    # The request of 159 s may be served by the second replica.
    assert bound(runs, 1.0, startup_s=100.0) == pytest.approx(1 - 99 / 300)
    assert bound(runs, 1.0, startup_s=0.5) == 1.0
    assert bound(runs, 2.0, startup_s=100.0) == 1.0


def test_a_need_of_several_replicas_at_once_is_ordered_at_once() -> None:
    runs = [each_second(1, 60), each_second(2, 60), each_second(4, 300)]
    assert orders_of(runs, 1.5) == [(0.0, 2), (60.0, 3), (60.0, 6)]
    assert bound(runs, 1.0, startup_s=100.0) == pytest.approx(1 - 99 / 300)


def test_a_larger_number_that_is_late_earlier_does_not_move_an_order_back() -> None:
    runs = [each_second(1, 60), each_second(2, 50, 51), each_second(3, 300)]
    assert orders_of(runs, 1.0) == [(0.0, 1), (60.0, 2), (60.0, 3)]


def test_a_request_that_no_engine_serves_on_time_is_late_but_shows_no_need() -> None:
    late = Late(10.0, 11.0, shows_need=False)
    runs = [replace(each_second(1, 300), late=(late,))]
    assert orders_of(runs, 1.0) == [(0.0, 1)]
    assert bound(runs, 1.0, startup_s=100.0) == pytest.approx(1 - 1 / 300)


@given(
    needs_s=st.lists(st.integers(0, 300), min_size=1, max_size=6).map(sorted),
    startups_s=st.tuples(st.floats(0, 300), st.floats(0, 300)).map(sorted),
)
@example(needs_s=[0, 186, 186], startups_s=[115.0, 187.0])
def test_the_bound_falls_neither_with_shorter_starts_nor_with_larger_factors(
    needs_s: list[int], startups_s: list[float]
) -> None:
    """More replicas serve a superset of requests here.

    But the request of the second before a start counts as served, at each start.
    """
    runs = [each_second(i, from_s) for i, from_s in enumerate([*needs_s, 300], start=1)]
    short_s, long_s = startups_s
    most_at_starts = (len(needs_s) + 1) / 300
    for factor in FACTORS:
        assert bound(runs, factor, short_s) >= bound(runs, factor, long_s) - most_at_starts
    for smaller, larger in pairwise(bound(runs, factor, long_s) for factor in FACTORS):
        assert larger >= smaller - most_at_starts


@pytest.fixture(scope="module")
def step_runs() -> list[FixedRun]:
    return list(fixed_runs(step()))


def test_the_runs_of_a_step_end_with_the_number_that_serves_it(step_runs: list[FixedRun]) -> None:
    one, two = step_runs
    assert (one.replicas, two.replicas) == (1, 2)
    assert STEP_S < one.enough_until_s < STEP_S + 10
    assert not two.late


def test_one_replica_serves_a_step_until_the_second_has_started(step_runs: list[FixedRun]) -> None:
    load = step(startup_s=100.0)
    one, two = step_runs
    late_rps = len(one.late) / (DURATION_S - one.enough_until_s)
    limit = bound(step_runs, 1.0, STARTUP_SHARE * 100.0)
    # A request that arrives within its TTFT before the second replica is ready may be on time.
    expected = late_rps * (STARTUP_SHARE * 100.0 - load.service.ttft_s)
    assert (1 - limit) * len(two.arrivals_s) == pytest.approx(expected, rel=0.05)
    summary = simulated_plan(load, orders_of(step_runs, 1.0))
    num_late = (1 - summary.attainment) * summary.arrivals
    # A start takes 100 s times a random factor, and leaves a queue.
    assert 0.8 * late_rps * 100.0 < num_late < 1.3 * late_rps * 100.0
    held_s = DURATION_S + (DURATION_S - one.enough_until_s)
    assert summary.gpu_hours == pytest.approx(held_s / 3600)


def test_attainment_falls_with_the_start_up_time(step_runs: list[FixedRun]) -> None:
    orders = orders_of(step_runs, 1.0)
    attained = [simulated_plan(step(s), orders).attainment for s in (10.0, 30.0, 60.0, 100.0)]
    limits = [bound(step_runs, 1.0, STARTUP_SHARE * s) for s in (10.0, 30.0, 60.0, 100.0)]
    assert all(short > long for short, long in pairwise(attained))
    assert all(short > long for short, long in pairwise(limits))
    assert all(of <= limit for of, limit in zip(attained, limits, strict=True))


@pytest.mark.parametrize("delay_s", [5.0, 30.0])
def test_a_plan_that_orders_later_does_not_attain_more(
    step_runs: list[FixedRun], delay_s: float
) -> None:
    load = step(startup_s=20.0)
    orders = orders_of(step_runs, 1.0)
    later = [(at_s + delay_s, replicas) for at_s, replicas in orders]
    at_once, delayed = (simulated_plan(load, each).attainment for each in (orders, later))
    assert delayed < at_once <= bound(step_runs, 1.0, STARTUP_SHARE * 20.0)


def test_the_plan_never_has_fewer_than_the_initial_replicas() -> None:
    (only,) = fixed_runs(step(initial_replicas=5))
    assert only.replicas == 5
    assert orders_of([only], 1.25) == [(0.0, 7)]


def test_a_closed_loop_has_plans() -> None:
    users = ((0.0, 10), (STEP_S, 60))
    plans = plans_of(load_of(Closed(users=users, think_s=3.0, mixes=(MIX,)), startup_s=60.0))
    assert tuple(plans) == FACTORS
    assert plans[1.0].attainment <= plans[1.0].bound < 1.0
    assert plans[1.0].attainment < plans[2.0].attainment <= plans[2.0].bound
    assert plans[1.0].gpu_hours < plans[2.0].gpu_hours
