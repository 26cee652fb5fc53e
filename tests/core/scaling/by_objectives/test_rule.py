"""Causes of a scale-up: the load one start-up ahead, bursts, and a standing backlog."""

import math
from dataclasses import replace

import pytest
from tests.core.scaling.by_objectives.world import (
    RULE,
    STARTUP_S,
    World,
    engine,
    gateway,
    needed,
    note,
)

from penstock.core.engine_time.iteration import MIN_WINDOWS
from penstock.core.scaling.by_objectives.outcomes import MOST_LOSS
from penstock.core.scaling.by_objectives.steps import (
    MAX_GROWTH,
    SCALE_UP_DELAY,
    SCALE_UP_HOLD_S,
    SPARE,
)
from penstock.core.scaling.rule import UNATTAINABLE, Bounds
from penstock.core.scaling.signals import EngineReading, PodView
from penstock.core.spec.objectives import Objectives


def test_step_is_asked_for_within_a_minute_and_kept() -> None:
    world = World(2, Bounds(1, 20))
    calm = world.runs(600, 4.0)[-1]
    grown = world.runs(60, 30.0)[-1]
    assert world.decision is not None
    assert grown >= 3 * calm
    assert min(world.runs(600, 30.0)) >= math.ceil(needed(30.0))


def test_growing_load_has_its_replicas_when_they_are_ready() -> None:
    """Load from 4 to 36 requests/s in 27 minutes. The mean lags, but the margin grows with its errors."""
    world, slope = World(2, Bounds(1, 40)), 0.02
    world.runs(600, 4.0)
    asked = [world.runs(2, 4.0 + 2 * slope * n)[0] for n in range(800)]
    per_rate = needed(10.0) / 10
    for n in range(200, 800):
        ahead = per_rate * (4.0 + slope * (2 * n + STARTUP_S))
        assert asked[n] >= 0.85 * ahead
        assert asked[n] <= 1.2 * ahead + 1


def test_scale_up_is_a_code_and_a_reason() -> None:
    world = World(1, Bounds(1, 20))
    world.runs_until_another_number(20.0, most_s=60)
    assert world.decision is not None
    assert world.decision.code == "ScaleUp"
    assert [entry.step for entry in world.decision.trail] == [
        "capacity",
        "forecast",
        "need",
        "up",
        "bounds",
    ]
    assert "replicas busy" in world.decision.reason
    assert "in 104 s by its" in world.decision.reason


@pytest.mark.parametrize("startup_s", [100.0, 300.0])
def test_more_must_be_needed_for_a_part_of_a_start_up(startup_s: float) -> None:
    world = World(2, Bounds(1, 20), replace(RULE, startup_s=startup_s))
    before = world.runs(900, 8.0)[-1]
    delay_s = SCALE_UP_DELAY * (startup_s + 4)
    asked = world.runs(delay_s + 10, 40.0)
    assert asked[-1] > before
    assert delay_s <= 2 * asked.count(before) <= delay_s + 6


def test_one_scale_up_at_most_doubles_the_number() -> None:
    """The next one follows a delay later if the load is still there."""
    world = World(2, Bounds(1, 40))
    before = world.runs(600, 8.0)[-1]
    assert world.runs_until_another_number(100.0, most_s=60) == MAX_GROWTH * before
    assert note(world.decision, "up").endswith(f"; at most 2 x {before} at a time")
    assert world.runs(60, 100.0)[-1] >= math.ceil(needed(100.0))


@pytest.mark.parametrize(("limit", "assumed"), [(None, 200), (64, 64), (1000, 200)])
def test_output_that_is_assumed_at_first_is_within_the_default_limit(
    limit: int | None, assumed: int
) -> None:
    rule = replace(RULE, max_output_tokens=limit)
    assert rule.initial().traffic.output.value == assumed


def test_capacity_names_the_tokens_and_the_limit() -> None:
    world = World(2, Bounds(1, 20))
    world.runs(120, 4.0)
    assert note(world.decision, "capacity") == (
        "a replica takes 5.08 requests/s of 2000 prompt and 300 output tokens, 82% busy (limit: KV cache)"
    )


def test_objectives_that_an_idle_engine_misses_buy_no_replicas() -> None:
    """An engine takes 15 ms for a token, whatever waits. The rule says so once engines were measured."""
    world = World(1, Bounds(1, 40))
    fast = needed(20.0)
    world.objectives = Objectives(3.0, 0.012)
    asked = world.runs(600, 20.0)
    assert world.decision is not None
    assert asked[-1] <= math.ceil(1.2 * fast)
    assert world.decision.unattainable is None
    fit = replace(world.state.fit, windows=MIN_WINDOWS)
    world.state = replace(world.state, watch=replace(world.state.watch, fit=fit))
    world.runs(2, 20.0)
    assert note(world.decision, UNATTAINABLE) in world.decision.reason
    assert world.decision.unattainable == (
        "not attainable: the mean request has a TPOT of 15.1ms on an idle engine, and the objective is 12ms; "
        "replicas are sized by engine time"
    )


def test_service_without_replicas_does_not_wait_to_be_sure() -> None:
    world = World(0, Bounds(0, 20))
    assert max(world.runs(10, 20.0)) > 1


@pytest.mark.parametrize("rate", [1.0, 5.0, 20.0])
def test_new_service_has_what_its_load_needs_after_the_scale_up_delay(rate: float) -> None:
    """And at most one replica more, until errors of its forecasts were measured."""
    world = World(1, Bounds(1, 40))
    asked = world.runs(1200, rate)
    least = math.ceil(needed(rate))
    delays = max(1, math.ceil(math.log(least, MAX_GROWTH)))
    delay = round(SCALE_UP_DELAY * (STARTUP_S + 4) / 2)
    assert set(asked[delays * (delay + 1) + 5 :]) <= {least, least + 1}
    assert asked[-1] <= math.ceil((1 + SPARE) * needed(rate))


def test_no_margin_is_added_in_the_first_seconds() -> None:
    world = World(1, Bounds(1, 40))
    world.runs(18, 20.0)
    found = world.state.forecast.now.forecast
    assert f"{found:.2f} replicas serve all but" in note(world.decision, "need")


@pytest.mark.parametrize(("loss", "replicas"), [(0.02, 3), (16.0, 2)])
def test_margin_is_what_the_allowed_loss_leaves(loss: float, replicas: int) -> None:
    """The load needs 1.77 after it has needed 2.36 for a while."""
    world = World(2, Bounds(1, 20), replace(RULE, loss=loss))
    world.runs(120, 12.0)
    assert world.runs(900, 9.0)[-1] == replicas


@pytest.mark.parametrize(("late", "multiple"), [(0.0, MOST_LOSS), (0.015, 1.0), (0.2, 1.0)])
def test_more_of_the_load_may_be_lost_while_nobody_is_late(late: float, multiple: float) -> None:
    world = World(4, Bounds(1, 20), late=late)
    world.runs(1800, 20.0)
    assert f"serve all but {multiple * 0.01:.2%} of the forecast load" in note(
        world.decision, "need"
    )


@pytest.mark.parametrize(("burst_s", "grows"), [(6, False), (60, True)])
def test_first_burst_is_followed_only_if_it_lasts(burst_s: float, *, grows: bool) -> None:
    world = World(2, Bounds(1, 20))
    calm = world.runs(600, 8.0)[-1]
    asked = world.runs(burst_s, 17.0) + world.runs(60, 8.0)
    assert (max(asked) > calm) == grows


@pytest.mark.parametrize(("burst_s", "rate", "added"), [(10, 20.0, 0), (20, 30.0, 1)])
def test_recurrent_bursts_are_waited_for_only_if_they_are_more_load_than_may_be_lost(
    burst_s: float, rate: float, added: int
) -> None:
    """Every ten minutes; 3% may be lost. Each is over before a pod starts.

    12 more requests/s for 10 s are 2.4% of the load, 22 more for 20 s are 8%. What is left when replicas
    of the last burst may go is for the next one.
    """
    world = World(2, Bounds(1, 20))
    for _ in range(7):
        world.runs(600 - burst_s, 8.0)
        world.runs(burst_s, rate)
    left = world.runs(SCALE_UP_HOLD_S + 2 * STARTUP_S, 8.0)[-1]
    least = math.ceil(needed(8.0))
    assert left >= least + added if added else left == least


def test_work_that_waits_for_a_start_up_asks_for_more() -> None:
    """Arrivals that were, the same in both worlds; in one of them hundreds more wait all the time."""
    calm, behind = World(2, Bounds(1, 20)), World(2, Bounds(1, 20))
    for world in (calm, behind):
        world.runs(600, 6.0)
    asked = []
    for _ in range(60):
        arrivals = int(behind.arrivals) + 12
        waiting = gateway(behind.now_s + 2, arrivals, queued=1000)
        asked += behind.runs(2, 6.0, gateway=waiting)
    calm_asked = calm.runs(120, 6.0)
    assert asked[:50] == calm_asked[:50]
    assert asked[-1] >= calm_asked[-1] + 3
    assert "for the backlog" in note(behind.decision, "need")
    assert "backlog" not in note(calm.decision, "need")


def test_backlog_that_comes_and_goes_asks_for_no_more() -> None:
    world = World(2, Bounds(1, 20))
    calm = world.runs(600, 6.0)[-1]
    asked = []
    for n in range(120):
        arrivals = int(world.arrivals) + 12
        waiting = gateway(world.now_s + 2, arrivals, queued=1000 if n % 10 else 0)
        asked += world.runs(2, 6.0, gateway=waiting)
    assert set(asked) == {calm}


@pytest.mark.parametrize("at_gateway", [False, True])
def test_closed_loop_that_fills_its_engines_grows_after_a_start_up(at_gateway: bool) -> None:
    """Clients that wait for answers send no more than is served: arrivals do not show what they lack."""
    world = World(1, Bounds(1, 20))
    world.runs(300, 1.0)
    asked: list[int] = []
    while world.replicas == 1 and len(asked) < 70:
        at_s, arrivals = world.now_s + 2, int(world.arrivals) + 2
        full = engine(at_s, arrivals, running=RULE.max_num_seqs)
        full = replace(full, waiting=0 if at_gateway else 300)
        pods = (PodView("pod-0", "Ready", 0.0, 0.0, full),)
        queued = gateway(at_s, arrivals, queued=300 if at_gateway else 0)
        asked += world.runs(2, 1.0, pods=pods, gateway=queued)
    assert asked[-1] == 2
    assert STARTUP_S <= 2 * len(asked) <= (1 + SCALE_UP_DELAY) * (STARTUP_S + 4) + 6


def test_backlog_asks_for_nothing_while_pods_are_starting() -> None:
    """Starting pods will serve the backlog. Once all are ready, what still waits asks for more."""
    world = World(1, Bounds(1, 20))
    world.runs(300, 1.0)
    created_s, asked = world.now_s, []
    for n in range(120):
        at_s, arrivals = world.now_s + 2, int(world.arrivals) + 2
        full = replace(engine(at_s, arrivals, running=RULE.max_num_seqs), waiting=300)
        ready = (PodView("pod-0", "Ready", 0.0, 0.0, full),)
        starting = tuple(
            PodView(f"new-{i}", "Starting", created_s, None, None)
            for i in range(world.replicas - 1)
        )
        pods = ready + (starting if n < 60 else ())
        asked += world.runs(2, 1.0, pods=pods, gateway=gateway(at_s, arrivals, queued=1500))
        if n == 5:
            assert asked[-1] == 1
            world.replicas = 2
    assert set(asked[6:110]) == {2}
    assert asked[-1] > 2


def test_number_stays_within_bounds_and_the_reason_says_so() -> None:
    world = World(2, Bounds(2, 4))
    assert set(world.runs(300, 50.0)) <= {2, 3, 4}
    assert world.decision is not None
    assert world.replicas == 4
    assert world.decision.code == "AtMaximum"
    assert "bounded by maxReplicas 4" in world.decision.reason
    for _ in range(20):
        world.runs(2, 50.0)
        assert (world.replicas, world.decision.code) == (4, "AtMaximum")
    assert min(world.runs(3000, 0.1)) == 2


def test_sequences_that_an_engine_reports_bound_its_capacity() -> None:
    """The rule's own number is for engines that report none."""
    world = World(2, Bounds(1, 20), replace(RULE, max_num_seqs=2))

    def limit() -> str:
        world.runs(10, 4.0)
        return note(world.decision, "capacity")

    assert "batch size" in limit()
    world.max_num_seqs = 1024
    assert "batch size" not in limit()
    world.max_num_seqs = 1
    assert "batch size" in limit()


def test_trail_begins_with_the_source_of_numbers_that_are_not_the_engines() -> None:
    world = World(2, Bounds(1, 20))
    world.runs(60, 4.0)
    assert world.decision is not None
    assert world.decision.trail[0].step == "capacity"
    seen = world.observation()
    first, *others = seen.pods
    assert isinstance(first.reading, EngineReading)
    scraped = replace(first.reading, at_s=world.now_s - 7.0, source="Prometheus")
    world.runs(2, 4.0, pods=(replace(first, reading=scraped), *others))
    source = world.decision.trail[0]
    assert source.step == "source"
    assert source.note == (
        f"numbers of 1 of {len(seen.pods)} engines are Prometheus', up to 9 s old"
    )
