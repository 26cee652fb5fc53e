"""Checks properties of Penstock's rule in random simulated scenarios: bounds, zero replicas, and replay.

    python -m benchmarks.simulator.random_scenarios [--hours 2000] [--first 0]

The seeds begin with --first. Each scenario lasts 10 to 40 minutes, with random workload, admission, bounds,
start-up time, faults and lost metrics. Each decision must satisfy:

    it is within the current bounds, and the fleet gets this number of pods
    it is not zero while a visible request waits or runs
    replaying the recorded observation gives the same decision

Prints the number of hours, decisions and scenarios. Exits with 1 at the first violation.
"""

import sys
from random import Random
from typing import Any

from benchmarks.options import option_parser

from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.tick import Settings, Tick
from penstock.core.scaling.recording import Recording, RecordingWriter
from penstock.core.scaling.rule import Bounds, Decision
from penstock.core.scaling.signals import GatewayReading, Observation
from penstock.core.spec.objectives import Objectives
from penstock.sim.clock import Clock
from penstock.sim.quota import Quota
from penstock.sim.scenario import Scenario
from penstock.sim.service import Service, schedule_fault

CHAT = {
    "prompt": {"kind": "lognormal", "median": 800, "p99": 4000},
    "output": {"kind": "lognormal", "median": 60, "p99": 300},
}


class Broken(AssertionError):
    """A violated property, with its scenario and time."""


def random_scenario(seed: int) -> Scenario:
    draw = Random(f"world/{seed}")
    duration_s = draw.uniform(600, 2400)
    low = draw.choice([0, 0, 1, 1, 2, 3])
    high = max(1, low + draw.choice([0, 1, 3, 7]))
    service = {
        "profile": draw.choice(["llama-3.1-8b-a100", "llama-3.1-8b-h100", "qwen2.5-0.5b-cpu"]),
        "ttft_s": draw.choice([0.5, 2.0, 5.0]),
        "tpot_s": draw.choice([0.03, 0.1]),
        "min_replicas": low,
        "max_replicas": high,
        "initial_replicas": draw.randint(low, high),
        "startup_s": draw.choice([5, 30, 110, 300]),
        "admission": draw.choice(["none", "fcfs", "deadline", "deadline"]),
        "workload": _workload(draw, duration_s),
    }
    metrics = {"loss": draw.choice([0.0, 0.0, 0.1, 0.5]), "delay_s": draw.choice([0.5, 5.0])}
    faults = [_fault(draw, duration_s) for _ in range(draw.choice([0, 0, 1, 2]))]
    return Scenario.model_validate(
        {
            "name": f"random-{seed}", "duration_s": duration_s, "tail_s": 300.0,
            "services": [service], "metrics": metrics, "faults": faults,
        }
    )  # fmt: skip


def _workload(draw: Random, duration_s: float) -> dict[str, Any]:
    """Random workload, usually small, because the properties do not depend on the load."""
    mixes = [{"classes": [CHAT]}]
    if draw.random() < 0.2:
        users = [[0, draw.randint(0, 10)], [duration_s / 2, draw.randint(0, 20)]]
        return {"kind": "closed", "users": users, "think_s": draw.uniform(2, 20), "mixes": mixes}
    times = sorted(draw.uniform(0, duration_s) for _ in range(4))
    rates = [draw.choice([0, 0, 0.05, 0.5, 2, 5]) for _ in range(6)]
    points = list(zip([0.0, *times, duration_s], rates, strict=True))
    return {"kind": "rate", "points": points, "cv": draw.choice([1.0, 4.0]), "mixes": mixes}


def _fault(draw: Random, duration_s: float) -> dict[str, Any]:
    begin = draw.uniform(0, duration_s)
    window = {"from_s": begin, "to_s": begin + draw.uniform(20, 400)}
    kinds: list[dict[str, Any]] = [
        {"kind": "blackout", "of": draw.choice(["engines", "gateway", "all"])},
        {"kind": "frozen", "of": draw.choice(["engines", "gateway", "all"])},
        {"kind": "slow-node", "factor": 3},
        {"kind": "slow-start"},
        {"kind": "crash", "phase": draw.choice(["Ready", "Starting"])},
        {"kind": "failing-starts", "share": 0.5},
        {"kind": "quota", "gpu": draw.choice(["A100", "H100", "CPU"]), "gpus": draw.randint(0, 3)},
    ]
    return {**window, **draw.choice(kinds)}


class Watched:
    """Rule that checks each of its decisions. ticks: input and output of each."""

    def __init__(self, rule: ObjectivesRule) -> None:
        self._rule = rule
        self.period_s = rule.period_s
        self.ticks: list[Tick] = []

    def initial(self) -> Any:
        return self._rule.initial()

    def decide(
        self, objectives: Objectives, bounds: Bounds, seen: Observation, state: Any
    ) -> tuple[Decision, Any]:
        decision, after = self._rule.decide(objectives, bounds, seen, state)
        self.ticks.append(
            Tick(Settings(self._rule, objectives, bounds, 8192), state, seen, decision)
        )
        if not bounds.min_replicas <= decision.desired <= bounds.max_replicas:
            raise Broken(f"{decision.desired} is not within {bounds}, at {seen.now_s:g} s")
        if not decision.desired and bounds.max_replicas and _is_busy(seen):
            raise Broken(f"none, with requests in flight, at {seen.now_s:g} s")
        return decision, after


def _is_busy(seen: Observation) -> bool:
    gateway = seen.gateway
    at_gateway = gateway.queued + gateway.in_flight if isinstance(gateway, GatewayReading) else 0
    return bool(at_gateway or any(r.running + r.waiting for r in seen.readings))


def lived(scenario: Scenario, seed: int) -> list[Tick]:
    clock, quota = Clock(), Quota(dict(scenario.quotas))
    service = Service(scenario.services[0], scenario, clock, quota, seed, "penstock", {})
    assert isinstance(service.scaler.rule, ObjectivesRule)
    watched = service.scaler.rule = Watched(service.scaler.rule)
    for fault in scenario.faults:
        schedule_fault(fault, [service], clock)
    service.begin()
    clock.run(scenario.duration_s + scenario.tail_s)
    return watched.ticks


def check_replay(ticks: list[Tick]) -> None:
    """Write and read the recording as JSON lines, then compare the replayed decisions."""
    writer = RecordingWriter("default/random")
    recording = Recording.read(line for tick in ticks for line in writer.lines(tick))
    for (again, decision), tick in zip(recording.replay(), ticks, strict=True):
        if decision != tick.decision or again.state != tick.state:
            raise Broken(f"replay decides otherwise at {tick.seen.now_s:g} s")


def check(seed: int) -> tuple[float, int]:
    """Simulate and check a scenario. Returns its hours and decisions. Raises Broken."""
    scenario = random_scenario(seed)
    try:
        ticks = lived(scenario, seed)
        check_replay(ticks)
    except Broken as error:
        raise Broken(f"scenario {seed}: {error}") from error
    return (scenario.duration_s + scenario.tail_s) / 3600, len(ticks)


def main() -> int:
    options = option_parser(__doc__, hours=2000.0, first=0).parse_args()
    hours, decisions, seed = 0.0, 0, options.first
    while hours < options.hours:
        try:
            lasted_h, count = check(seed)
        except Broken as error:
            print(error)
            return 1
        hours, decisions, seed = hours + lasted_h, decisions + count, seed + 1
        if seed % 100 == 0:
            print(
                f"{hours:.0f} hours, {decisions:,} decisions in {seed - options.first} scenarios",
                flush=True,
            )
    print(
        f"{hours:.0f} hours, {decisions:,} decisions in {seed - options.first} scenarios: all as promised"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
