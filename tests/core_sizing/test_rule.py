"""The rule on hand-made sights of a service: what makes it grow, shrink and hold."""

from dataclasses import replace

import pytest

from penstock.core.scaling.by_objectives.iteration import IterationModel
from penstock.core.scaling.by_objectives.rule import Sizing
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import (
    EngineReading,
    GatewayReading,
    Histogram,
    Missing,
    Observation,
    PodView,
    attended_tokens,
)
from penstock.core.spec.objectives import Objectives

MODEL = IterationModel(0.015, 6e-5, 3e-5, 5e-8)
RULE = Sizing(prior=MODEL, startup_s=100.0)
OBJECTIVES = Objectives(3.0, 0.1)
EMPTY = Histogram((1.0,), (0, 0), 0.0)
PROMPT_TOKENS, OUTPUT_TOKENS = 2000, 300


def engine(at_s: float, done: int, running: int = 0) -> EngineReading:
    return EngineReading(
        at_s=at_s, running=running, waiting=0, kv_usage=0.1, kv_capacity_tokens=300_000,
        prefill_tokens_pending=0, prompt_tokens=done * PROMPT_TOKENS, cached_tokens=0,
        output_tokens=done * OUTPUT_TOKENS, steps=0, finished=done,
        output_tokens_finished=done * OUTPUT_TOKENS, preemptions=0, ttft_s=EMPTY, itl_s=EMPTY,
    )  # fmt: skip


def gateway(
    at_s: float, arrivals: int, queued: int = 0, in_flight: int = 0, late: int = 0
) -> GatewayReading:
    return GatewayReading(
        at_s=at_s, queued=queued, queued_prompt_tokens=queued * PROMPT_TOKENS, in_flight=in_flight,
        in_flight_prefill_tokens=0, oldest_wait_s=0.0, arrivals=arrivals,
        prompt_tokens=arrivals * PROMPT_TOKENS, ended=arrivals,
        output_tokens=arrivals * OUTPUT_TOKENS,
        attended_tokens=arrivals * attended_tokens(PROMPT_TOKENS, OUTPUT_TOKENS), shed=0, failed=0,
        late=late, ttft_s=Histogram((1.0,), (arrivals, 0), 0.0), tpot_s=EMPTY,
    )  # fmt: skip


class World:
    """Simulated service: replicas start and stop at once, requests arrive evenly and end at once.

    late: fraction of the requests that miss an objective.
    """

    def __init__(
        self, replicas: int, bounds: Bounds, rule: Sizing = RULE, late: float = 0.0
    ) -> None:
        self.replicas, self.bounds, self.rule, self.late = replicas, bounds, rule, late
        self.state = rule.initial()
        self.now_s, self.arrivals = 0.0, 0.0
        self.decision: Decision | None = None
        self.max_num_seqs: int | None = None

    def runs(self, seconds: float, rate: float, **changes: object) -> list[int]:
        """The numbers asked for. changes: of each sight."""
        asked = []
        for _ in range(round(seconds / RULE.period_s)):
            self.now_s += RULE.period_s
            self.arrivals += rate * RULE.period_s
            self.decision, self.state = self.rule.decide(
                OBJECTIVES, self.bounds, replace(self.sight(), **changes), self.state
            )
            self.replicas = self.decision.desired
            asked.append(self.replicas)
        return asked

    def sight(self) -> Observation:
        share = int(self.arrivals) // max(1, self.replicas)
        reading = replace(engine(self.now_s, share), max_num_seqs=self.max_num_seqs)
        pods = tuple(PodView(f"pod-{i}", "Ready", 0.0, 0.0, reading) for i in range(self.replicas))
        arrivals = int(self.arrivals)
        seen = gateway(self.now_s, arrivals, late=int(self.late * arrivals))
        return Observation(self.now_s, pods, self.replicas, seen)


def test_a_step_is_asked_for_within_a_minute_and_kept() -> None:
    world = World(2, Bounds(1, 20))
    calm = world.runs(600, 4.0)[-1]
    grown = world.runs(60, 30.0)[-1]
    assert grown >= 3 * calm
    assert min(world.runs(600, 30.0)) >= grown


def test_the_sequences_that_an_engine_reports_bound_its_capacity() -> None:
    """The rule's own number is for engines that report none."""
    world = World(2, Bounds(1, 20), replace(RULE, max_num_seqs=2))

    def limit() -> str:
        world.runs(10, 4.0)
        assert world.decision is not None
        return next(entry.note for entry in world.decision.trail if entry.step == "capacity")

    assert "batch size" in limit()
    world.max_num_seqs = 1024
    assert "batch size" not in limit()
    world.max_num_seqs = 1
    assert "batch size" in limit()


def test_a_burst_that_is_over_in_seconds_is_worth_nothing_however_high() -> None:
    world = World(2, Bounds(1, 20))
    calm = world.runs(600, 2.0)[-1]
    assert set(world.runs(2, 300.0) + world.runs(60, 2.0)) == {calm}


def test_whoever_has_none_does_not_wait_to_be_sure() -> None:
    world = World(0, Bounds(0, 20))
    assert max(world.runs(10, 20.0)) > 1


def test_less_load_is_followed_down_after_a_while() -> None:
    world = World(2, Bounds(1, 20))
    high = world.runs(900, 10.0)[-1]
    assert world.runs(50, 2.0)[-1] >= high - 1
    assert world.runs(600, 2.0)[-1] <= high // 2


@pytest.mark.parametrize(("crowd_s", "is_waited_for"), [(240, False), (580, True)])
def test_a_crowd_that_is_over_goes_unless_ten_minutes_are_almost_over(
    crowd_s: float, is_waited_for: bool
) -> None:
    world = World(2, Bounds(1, 20))
    low = world.runs(900, 4.0)[-1]
    asked = world.runs(crowd_s, 14.0)
    high = asked[-1]
    asked += world.runs(400, 4.0)
    grew_s = RULE.period_s * asked.index(high)
    kept_s = RULE.period_s * asked.count(high)
    assert high > low
    assert grew_s < 100
    assert kept_s > 600 if is_waited_for else kept_s < 540
    assert asked[-1] < high


def test_what_goes_after_a_part_of_a_growth_is_not_held_for_it() -> None:
    """A further decrease after a decrease is not a second reversal."""
    world = World(2, Bounds(1, 20))
    world.runs(900, 4.0)
    high = world.runs(100, 20.0)[-1]
    lower = world.runs(150, 9.0)[-1]
    assert lower <= high - 2
    assert world.runs(150, 7.5)[-1] < lower


@pytest.mark.parametrize("blind", [{"gateway": Missing("gateway", "timeout")}, {"pods": ()}])
def test_whoever_cannot_see_does_not_shrink(blind: dict[str, object]) -> None:
    world = World(2, Bounds(1, 20))
    before = world.runs(600, 8.0)[-1]
    if "pods" in blind:
        lost = Missing("pod", "timeout")
        blind = {"pods": tuple(PodView(f"p{i}", "Ready", 0.0, 0.0, lost) for i in range(before))}
    assert set(world.runs(300, 0.0, **blind)) == {before}
    assert world.decision is not None
    assert not world.decision.valid


def test_the_trail_begins_with_whose_numbers_they_are_when_not_the_engines() -> None:
    world = World(2, Bounds(1, 20))
    world.runs(60, 4.0)
    assert world.decision is not None
    assert world.decision.trail[0].step == "capacity"
    sight = world.sight()
    first, *others = sight.pods
    assert isinstance(first.reading, EngineReading)
    told = replace(first.reading, at_s=world.now_s - 7.0, source="Prometheus")
    world.runs(2, 4.0, pods=(replace(first, reading=told), *others))
    source = world.decision.trail[0]
    assert source.step == "source"
    assert source.note == (
        f"numbers of 1 of {len(sight.pods)} engines are Prometheus', up to 9 s old"
    )


@pytest.mark.parametrize("whose", ["gateway", "engines", "both"])
def test_numbers_that_stay_as_they_were_are_no_numbers(whose: str) -> None:
    """Series that go on after their source has gone, and say when they are from."""
    world = World(2, Bounds(1, 20))
    before = world.runs(600, 8.0)[-1]
    old, idle = world.sight(), gateway(world.now_s, int(world.arrivals))
    frozen: dict[str, object] = {"gateway": old.gateway, "pods": old.pods}
    if whose == "gateway":
        frozen = {"gateway": idle}
    elif whose == "engines":
        frozen = {"pods": old.pods}
    assert set(world.runs(300, 0.0, **frozen)) == {before}


def test_numbers_that_have_just_stopped_shrink_nothing() -> None:
    """Counters that do not advance are no evidence that the load has ended."""
    world = World(2, Bounds(1, 20))
    world.runs(900, 10.0)
    before = world.runs(56, 3.0)[-1]
    stopped = world.sight().gateway
    assert set(world.runs(20, 0.0, gateway=stopped)) == {before}
    assert world.runs(60, 3.0)[-1] < before


def test_a_bound_is_never_crossed_and_told() -> None:
    world = World(2, Bounds(2, 4))
    assert max(world.runs(300, 50.0)) == 4
    assert world.decision is not None
    assert "bounded by maxReplicas 4" in world.decision.reason


def test_zero_when_idle_and_one_when_somebody_waits() -> None:
    world = World(1, Bounds(0, 4))
    world.runs(300, 0.5)
    busy = gateway(world.now_s, int(world.arrivals), in_flight=1)
    assert 0 not in world.runs(1500, 0.0, gateway=busy)
    assert world.runs(1500, 0.0)[-1] == 0
    assert world.runs(20, 0.5)[-1] == 1


@pytest.mark.parametrize("rate", [0.5, 4.0, 20.0])
def test_what_came_a_while_ago_wakes_nobody(rate: float) -> None:
    world = World(1, Bounds(0, 9))
    world.runs(600, rate)
    asked = world.runs(1500, 0.0)
    assert asked[-1] == 0
    assert asked == sorted(asked, reverse=True)


def test_a_busy_service_that_falls_silent_is_ready_when_all_comes_back() -> None:
    world = World(2, Bounds(0, 20))
    busy = world.runs(5400, 10.0)[-1]
    assert set(world.runs(1000, 0.0)) == {busy}
    assert world.decision is not None
    assert "10.00 requests/s came until" in world.decision.reason
    assert set(world.runs(120, 10.0)) == {busy}
    assert world.decision is not None
    assert "silence" not in [entry.step for entry in world.decision.trail]


def test_a_load_that_is_gone_for_good_costs_no_more_than_a_quarter_of_its_time() -> None:
    world = World(2, Bounds(0, 20))
    busy = world.runs(3600, 10.0)[-1]
    asked = world.runs(1800, 0.0)
    assert 700 < RULE.period_s * asked.count(busy) < 900 + 120
    assert asked[-1] == 0


def test_work_that_waits_asks_for_more() -> None:
    """Arrivals that were, the same in both worlds; in one of them thousands more wait."""
    calm, behind = World(4, Bounds(1, 20)), World(4, Bounds(1, 20))
    for world in (calm, behind):
        world.runs(400, 6.0)
    waiting = replace(gateway(behind.now_s, int(behind.arrivals)), queued=20_000)
    assert behind.runs(20, 0.0, gateway=waiting)[-1] > calm.runs(20, 0.0)[-1]


def test_a_queue_that_stays_asks_for_more_where_arrivals_are_what_is_served() -> None:
    """A closed loop at the limit of its replicas: as many come as go, and some always wait."""
    world = World(2, Bounds(1, 20))
    calm = world.runs(600, 4.0)[-1]
    pods = tuple(
        PodView(f"pod-{i}", "Ready", 0.0, 0.0, replace(engine(999.0, 0, running=16), waiting=8))
        for i in range(calm)
    )
    assert world.runs(60, 4.0, pods=pods)[-1] == calm
    assert world.runs(30, 4.0, pods=pods)[-1] > calm


@pytest.mark.parametrize("rate", [1.0, 5.0, 20.0])
def test_a_life_begins_without_asking_for_too_many(rate: float) -> None:
    """A replica that is released within ten minutes was requested too early."""
    world = World(1, Bounds(1, 40))
    asked = world.runs(900, rate)
    assert asked == sorted(asked)
    assert asked[-1] - asked[20] <= 1 + asked[-1] // 5


def test_calm_while_replicas_start_is_none() -> None:
    """Closed-loop clients send no more than ready replicas serve, so a steady arrival rate shows nothing
    until the new replicas are ready."""
    world = World(2, Bounds(1, 20))
    before = world.runs(700, 12.0)[-1]
    starting = (*world.sight().pods, PodView("new", "Starting", world.now_s, None, None))
    assert set(world.runs(200, 0.5, pods=starting)) == {before}
    assert world.runs(50, 0.5)[-1] == before
    assert world.runs(120, 0.5)[-1] < before


@pytest.mark.parametrize("at_gateway", [False, True])
def test_a_closed_loop_that_fills_its_engines_is_not_left_to_wait(at_gateway: bool) -> None:
    world = World(1, Bounds(1, 20))
    world.runs(300, 1.0)
    full = engine(world.now_s, int(world.arrivals), running=RULE.max_num_seqs)
    full = replace(full, waiting=0 if at_gateway else 200)
    queued = gateway(world.now_s, int(world.arrivals), queued=200 if at_gateway else 0)
    pods = (PodView("pod-0", "Ready", 0.0, 0.0, full),)
    assert world.runs(2 * OBJECTIVES.ttft_s, 0.0, pods=pods, gateway=queued)[-1] == 2


@pytest.mark.parametrize(
    ("startup_s", "burst_s", "grows"), [(100, 6, False), (100, 60, True), (10, 6, True)]
)
def test_a_burst_that_is_over_before_a_pod_could_help_asks_for_none(
    startup_s: float, burst_s: float, *, grows: bool
) -> None:
    rule = replace(RULE, startup_s=startup_s)
    world = World(2, Bounds(1, 20), rule)
    calm = world.runs(600, 8.0)[-1]
    asked = world.runs(burst_s, 17.0) + world.runs(60, 8.0)
    assert (max(asked) > calm) == grows


def test_from_zero_the_first_is_asked_for_at_once() -> None:
    world = World(1, Bounds(0, 4))
    world.runs(300, 0.5)
    world.runs(1500, 0.0)
    assert world.replicas == 0
    assert world.runs(6, 5.0)[-1] >= 1


@pytest.mark.parametrize(("loss", "replicas"), [(0.02, 3), (2.0, 3), (16.0, 2)])
def test_who_gives_more_away_spares_less(loss: float, replicas: int) -> None:
    """The load needs 1.94: two are enough, and with a tenth to spare they are not."""
    world = World(4, Bounds(1, 20), replace(RULE, loss=loss))
    assert world.runs(1800, 10.0)[-1] == replicas


@pytest.mark.parametrize(("late", "replicas"), [(0.0, 4), (0.015, 4), (0.2, 5)])
def test_who_fails_asks_for_more_and_says_why(late: float, replicas: int) -> None:
    """The load needs 3.9, and a part of one more for what it may swing by."""
    world = World(4, Bounds(1, 20), late=late)
    assert world.runs(1800, 20.0)[-1] == replicas
    assert world.decision is not None
    assert ("were late" in world.decision.reason) == (replicas > 4)
