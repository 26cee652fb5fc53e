"""When the rule removes replicas, when it scales to zero, and when it holds the number."""

from dataclasses import replace

import pytest
from tests.core.scaling.by_objectives.world import RULE, STARTUP_S, World, gateway, needed, note

from penstock.core.scaling.by_objectives.record import Learned
from penstock.core.scaling.by_objectives.steps import SCALE_UP_HOLD_S, SPARE
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Missing, PodView


@pytest.mark.parametrize(
    ("calm_s", "startup_s", "delay_s"),
    [(60.0, 100.0, 104.0), (300.0, 100.0, 300.0), (60.0, 10.0, 60.0), (20.0, 10.0, 20.0)],
)
def test_replicas_are_removed_after_the_delay_and_not_before(
    calm_s: float, startup_s: float, delay_s: float
) -> None:
    """The delay is the longer of scaleDownDelay and the time that a pod takes until it serves."""
    world = World(4, Bounds(1, 20), replace(RULE, calm_s=calm_s, startup_s=startup_s))
    before = world.runs(1200, 20.0)[-1]
    asked = world.runs(delay_s + 180, 4.0)
    held_s = 2 * asked.count(before)
    assert delay_s <= held_s <= delay_s + 30
    assert asked == sorted(asked, reverse=True)
    assert asked[-1] <= before / 2


def test_delay_is_a_code_and_a_reason() -> None:
    world = World(4, Bounds(1, 20))
    before = world.runs(100, 3.0)[-1]
    assert world.decision is not None
    assert (before, world.decision.code) == (4, "ScaleDownDelayed")
    assert "4 are held: fewer are enough for 94 of 104 s" in world.decision.reason
    world.runs_until_another_number(3.0, most_s=60)
    assert world.decision.code == "ScaleDown"
    assert "1 has been enough for 104 s" in world.decision.reason


def test_what_was_needed_within_the_delay_is_kept() -> None:
    """Load that comes back sooner than a pod starts finds its replicas."""
    world = World(4, Bounds(1, 20))
    world.runs(1200, 20.0)
    for _ in range(5):
        assert min(world.runs(80, 4.0) + world.runs(40, 20.0)) >= needed(20.0)


@pytest.mark.parametrize("spare", [-0.02, 0.02])
def test_replicas_are_removed_only_if_fewer_hold_a_bit_more_than_the_need(spare: float) -> None:
    """A load of nearly two replicas: two hold it, but are kept from three only with SPARE."""
    world = World(3, Bounds(1, 20), replace(RULE, loss=16.0))
    rate = 10.0 * 2 / (1 + SPARE + spare) / needed(10.0)
    assert world.runs(1200, rate)[-1] == (2 if spare > 0 else 3)


def grown(calm: float, peak: float, peak_s: float) -> World:
    """A service whose load went up for peak_s, from an hour of calm, and back. Its clock is kept."""
    world = World(2, Bounds(1, 20))
    world.runs(3600, calm)
    world.runs(peak_s, peak)
    return world


def test_one_replica_is_not_removed_alone_soon_after_a_scale_up() -> None:
    """The replica is held until SCALE_UP_HOLD_S after the last scale-up, and then removed at once."""
    calm, peak = (10.0 * replicas / needed(10.0) for replicas in (2.5, 3.5))
    world = grown(calm, peak, 60.0)
    assert world.replicas == 4
    grew_s = world.state.grew_s
    assert grew_s is not None
    kept_s = grew_s + SCALE_UP_HOLD_S - world.now_s
    assert kept_s > 1.5 * STARTUP_S
    assert set(world.runs(kept_s - 2, calm)) == {4}
    assert "one fewer is enough" in note(world.decision, "delay")
    assert world.runs(6, calm)[-1] == 3


def test_more_than_one_replica_are_removed_soon_after_a_scale_up() -> None:
    calm, peak = (10.0 * replicas / needed(10.0) for replicas in (1.5, 4.5))
    world = grown(calm, peak, 60.0)
    assert world.replicas >= 5
    grew_s = world.state.grew_s
    assert grew_s is not None
    asked = world.runs(2 * STARTUP_S, calm)
    assert world.now_s < grew_s + SCALE_UP_HOLD_S
    assert asked[-1] <= 3


def test_last_replica_is_removed_soon_after_a_scale_up() -> None:
    """An idle service needs none, though it grew from zero a short time ago."""
    world = World(0, Bounds(0, 4))
    assert world.runs(60, 0.5)[-1] == 1
    asked = world.runs(STARTUP_S + 30, 0.0)
    assert asked[-1] == 0
    assert world.now_s < SCALE_UP_HOLD_S


def test_calm_while_replicas_start_is_none() -> None:
    """Closed-loop clients send no more than ready replicas serve, so a steady arrival rate shows nothing
    until the new replicas are ready."""
    world = World(2, Bounds(1, 20))
    before = world.runs(700, 12.0)[-1]
    starting = (*world.observation().pods, PodView("new", "Starting", world.now_s, None, None))
    assert set(world.runs(200, 0.5, pods=starting)) == {before}
    assert set(world.runs(100, 0.5)) == {before}
    assert world.runs(120, 0.5)[-1] < before


@pytest.mark.parametrize("calm_s", [60.0, 300.0])
@pytest.mark.parametrize(("least", "left"), [(0, 0), (1, 1)])
def test_idle_service_is_scaled_to_zero_after_the_delay_if_it_may(
    calm_s: float, least: int, left: int
) -> None:
    world = World(1, Bounds(least, 4), replace(RULE, calm_s=calm_s))
    delay_s = max(calm_s, STARTUP_S + 4)
    world.runs(600, 0.5)
    asked = world.runs(delay_s + 20, 0.0)
    assert set(asked[: int(delay_s / 2) - 2]) == {1}
    assert asked[-1] == left


def test_service_with_a_running_request_is_not_scaled_to_zero() -> None:
    world = World(1, Bounds(0, 4))
    world.runs(300, 0.5)
    busy = gateway(world.now_s, int(world.arrivals), in_flight=1)
    asked = []
    for _ in range(400):
        asked += world.runs(2, 0.0, gateway=replace(busy, at_s=world.now_s))
    assert set(asked) == {1}


def test_new_operator_keeps_the_replica_of_a_running_request() -> None:
    """The new operator has observed no arrival yet, so its load is 0."""
    old, new = World(1, Bounds(0, 4)), World(1, Bounds(0, 4))
    old.runs(600, 0.5)
    new.state = Learned.of(old.state).restored(RULE.initial())
    new.now_s, new.arrivals = old.now_s, old.arrivals
    busy = gateway(new.now_s, int(new.arrivals), in_flight=1)
    asked = []
    for _ in range(200):
        asked += new.runs(2, 0.0, gateway=replace(busy, at_s=new.now_s + 2))
    assert set(asked) == {1}


@pytest.mark.parametrize("rate", [0.5, 4.0, 20.0])
def test_load_that_ended_wakes_nobody(rate: float) -> None:
    world = World(1, Bounds(0, 9))
    world.runs(600, rate)
    asked = world.runs(1500, 0.0)
    assert asked[-1] == 0
    assert asked == sorted(asked, reverse=True)


@pytest.mark.parametrize("rate", [0.5, 5.0])
def test_first_request_wakes_a_service_at_zero_at_once(rate: float) -> None:
    world = World(1, Bounds(0, 4))
    world.runs(300, 0.5)
    assert world.runs(600, 0.0)[-1] == 0
    assert world.runs(2, rate)[-1] >= 1


@pytest.mark.parametrize("blind", [{"gateway": Missing("gateway", "timeout")}, {"pods": ()}])
def test_number_is_held_while_metrics_are_missing(blind: dict[str, object]) -> None:
    world = World(2, Bounds(1, 20))
    before = world.runs(600, 8.0)[-1]
    if "pods" in blind:
        lost = Missing("pod", "timeout")
        blind = {"pods": tuple(PodView(f"p{i}", "Ready", 0.0, 0.0, lost) for i in range(before))}
    assert set(world.runs(300, 0.0, **blind)) == {before}
    assert world.decision is not None
    assert not world.decision.valid
    assert world.decision.code == "MetricsMissing"


def test_one_missing_engine_holds_a_scale_down_but_no_scale_up() -> None:
    world = World(2, Bounds(1, 20))
    before = world.runs(900, 10.0)[-1]

    def without_one() -> dict[str, object]:
        first, *others = world.observation().pods
        return {"pods": (replace(first, reading=Missing("pod-0", "timeout")), *others)}

    low = [world.runs(2, 2.0, **without_one())[0] for _ in range(150)]
    assert set(low) == {before}
    high = [world.runs(2, 40.0, **without_one())[0] for _ in range(30)]
    assert high[-1] > before


@pytest.mark.parametrize("whose", ["gateway", "engines", "both"])
def test_number_is_held_while_metrics_stand_still(whose: str) -> None:
    """Series that go on after their source has gone, and say when they are from."""
    world = World(2, Bounds(1, 20))
    before = world.runs(600, 8.0)[-1]
    old, idle = world.observation(), gateway(world.now_s, int(world.arrivals))
    frozen: dict[str, object] = {"gateway": old.gateway, "pods": old.pods}
    if whose == "gateway":
        frozen = {"gateway": idle}
    elif whose == "engines":
        frozen = {"pods": old.pods}
    assert set(world.runs(300, 0.0, **frozen)) == {before}


def test_metrics_that_have_just_stopped_start_the_delay_again() -> None:
    """Counters that do not advance are no evidence that the load has ended."""
    world = World(2, Bounds(1, 20))
    world.runs(900, 20.0)
    before = world.runs(90, 3.0)[-1]
    stopped = world.observation().gateway
    assert set(world.runs(18, 0.0, gateway=stopped)) == {before}
    assert set(world.runs(100, 3.0)) == {before}
    assert world.runs(60, 3.0)[-1] < before


@pytest.mark.parametrize("replicas", [0, 2])
def test_number_is_held_until_the_first_request(replicas: int) -> None:
    world = World(replicas, Bounds(0, 20))
    assert set(world.runs(300, 0.0)) == {replicas}
    assert world.decision is not None
    assert world.decision.code == "NoRequests"
    assert "no request has come yet" in world.decision.reason
