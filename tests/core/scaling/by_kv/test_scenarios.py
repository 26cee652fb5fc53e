"""15-minute scenarios of the KV rule in simulated time."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from tests.core.scaling.by_kv.engine_loads import engine, observation

from penstock.core.scaling.by_kv.rule import KvRule
from penstock.core.scaling.delays import ScaleDownDelay
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Missing

TICK_S = 2.0
CAPACITY_TOKENS = 2048
RULE = KvRule(kv_utilization_target=0.75, queue_length_target=4, scale_down_delay_s=60.0)
BOUNDS = Bounds(1, 8)


@dataclass
class World:
    """Requests of 256 KV tokens; an engine holds 8 of them; a new engine is ready after 20 s."""

    bounds: Bounds = BOUNDS
    start_s: float = 20.0
    now: float = 0.0
    replicas: int = 1
    ready_at: list[float] = field(default_factory=lambda: [0.0])
    state: ScaleDownDelay = field(default_factory=ScaleDownDelay)
    history: list[tuple[float, int]] = field(default_factory=list)
    lost: bool = False

    def run(self, seconds, requests):
        """requests: how many there are, running or waiting; a number, or a function of the time."""
        end = self.now + seconds
        while self.now < end:
            self.tick(requests(self.now) if callable(requests) else requests)
            self.now += TICK_S

    def tick(self, requests):
        ready = sum(at <= self.now for at in self.ready_at)
        engines = []
        for n in range(ready):
            mine = requests // ready + (n < requests % ready)
            running = min(mine, 8)
            waiting = mine - running
            usage = running * 256 / CAPACITY_TOKENS
            engines.append(
                engine(usage, waiting, running, 128 * waiting, CAPACITY_TOKENS, at_s=self.now)
            )
        if self.lost:
            engines = [Missing(f"e{n}", "ReadTimeout") for n in range(ready)]
        seen = observation(*engines, provisioned=self.replicas, now_s=self.now)
        decision, self.state = RULE.decide(None, self.bounds, seen, self.state)
        if decision.desired != self.replicas:
            self.history.append((self.now, decision.desired))
            added = max(0, decision.desired - self.replicas)
            self.ready_at = sorted(self.ready_at)[: decision.desired]
            self.ready_at += [self.now + self.start_s] * added
            self.replicas = decision.desired

    @property
    def reversals(self):
        counts = [1, *(count for _, count in self.history)]
        moves = [b - a for a, b in pairwise(counts)]
        return sum((a > 0) != (b > 0) for a, b in pairwise(moves))


def test_a_step_up_and_back_down():
    world = World()
    world.run(60, 2)
    assert world.history == []
    world.run(300, 16)  # 4,096 tokens when they run
    assert world.replicas == 3
    assert world.now - world.history[0][0] > 290  # asked for at the first tick
    world.run(540, 1)
    assert world.replicas == 1
    assert [count for _, count in world.history[-2:]] == [2, 1]
    assert world.reversals == 1


def test_a_flood_goes_to_the_bound_in_steps_that_wait_for_engines():
    world = World()
    world.run(120, 400)
    assert world.replicas == 8
    assert [count for _, count in world.history] == [6, 8]
    assert world.history[1][0] >= 20


@pytest.mark.parametrize("requests", range(0, 70, 3))
def test_constant_load_does_not_oscillate(requests):
    world = World()
    world.run(300, requests)
    settled = len(world.history)
    world.run(600, requests)
    assert len(world.history) - settled <= max(0, world.replicas)
    assert world.reversals <= 1
    world.run(300, requests)
    before = len(world.history)
    world.run(900, requests)
    assert len(world.history) == before


def test_a_load_that_jumps_within_the_delay_keeps_its_replicas():
    world = World()
    world.run(900, lambda now: 14 if now % 40 < 20 else 1)
    assert [count for _, count in world.history] == [2, 3]


def test_metrics_that_are_lost_hold_and_come_back():
    world = World()
    world.run(100, 16)
    held = world.replicas
    world.lost = True
    world.run(400, 0)
    assert world.replicas == held
    world.lost = False
    world.run(56, 0)
    assert world.replicas == held  # the delay begins with the first tick
    world.run(10, 0)
    assert world.replicas == held - 1


def test_shrinking_bounds_are_followed():
    world = World()
    world.run(100, 400)
    world.bounds = Bounds(1, 2)
    world.run(2, 400)
    assert world.replicas == 2
