"""Searches the cheapest replica plan with the load known: a bound on what any scaling rule could save.

    python -m benchmarks.simulator.optimal_plan azure-110 [mooncake-110 ...] [--traces FOLDER] [--steps 300]

A plan has the desired replicas of each minute. The search starts with the cheapest fixed number or oracle
plan that attains the target. It changes a few minutes by one replica, simulates the same slice of the trace,
and keeps plans that attain the target with fewer GPU-hours, start-up included; by simulated annealing it also
keeps slightly worse ones. The result is achievable with perfect foresight; a longer search may find a better
one. Prints each improvement.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from random import Random

from penstock.sim import compiled

if __name__ == "__main__":
    compiled.prefer(sys.argv)  # before any compiled module is imported

from benchmarks.simulator.frontier.scenarios import NamedScenario, find_scenario

from penstock.sim.baselines.oracle import Oracle
from penstock.sim.clock import Clock
from penstock.sim.quota import Quota
from penstock.sim.report import summarize
from penstock.sim.service import Service

GOAL = 0.99
CUT_S = 60.0
# Penalty in GPU-hours per percentage point of missing attainment.
POINT_GPU_HOURS = 0.2
# Initial temperature in GPU-hours: about one replica for half a minute. It falls to 0.
WARMTH_GPU_HOURS = 0.008
# Utilizations with which the oracle plans.
SHARES = (0.9, 1.0, 1.05, 1.1, 1.15)

Plan = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    attainment: float
    gpu_hours: float

    @property
    def is_enough(self) -> bool:
        return self.attainment >= GOAL

    @property
    def cost(self) -> float:
        return self.gpu_hours + POINT_GPU_HOURS * 100 * max(0.0, GOAL - self.attainment)


@dataclass(slots=True)
class Slice:
    """Report part of a trace. known: outcomes of simulated plans."""

    named: NamedScenario
    seed: int
    known: dict[Plan, Outcome] = field(default_factory=dict)

    def minutes(self) -> int:
        scenario, _ = self.named.run_of("report", "deadline", self.seed)
        return int(scenario.duration_s // CUT_S) + 1

    def most(self) -> int:
        scenario, _ = self.named.run_of("report", "deadline", self.seed)
        return scenario.services[0].max_replicas

    def outcome(self, plan: Plan) -> Outcome:
        if plan not in self.known:
            self.known[plan] = self._run(plan)
        return self.known[plan]

    def oracles(self, share: float) -> Plan:
        rule = self._service(Clock(), "oracle", {"share": str(share)}).rule
        assert isinstance(rule, Oracle)
        starts = (i * CUT_S for i in range(self.minutes()))
        return tuple(max(1, rule.most(at_s, at_s + CUT_S + rule.ahead_s)) for at_s in starts)

    def _run(self, plan: Plan) -> Outcome:
        scenario, _ = self.named.run_of("report", "deadline", self.seed)
        clock = Clock()
        service = self._service(clock, "static", {"replicas": "1"})
        levels = tuple((i * CUT_S, replicas) for i, replicas in enumerate(plan))
        service.scaler.rule = Oracle(levels, ahead_s=0.0)
        service.begin()
        clock.run(scenario.duration_s + scenario.tail_s)
        figures = summarize(service, scenario.duration_s)
        return Outcome(figures.attainment, figures.gpu_hours)

    def _service(self, clock: Clock, policy: str, knobs: dict[str, str]) -> Service:
        scenario, seed = self.named.run_of("report", "deadline", self.seed)
        return Service(scenario.services[0], scenario, clock, Quota({}), seed, policy, knobs)


def fixed(of: Slice) -> Plan:
    """Smallest fixed number that attains the target, searched downwards because overload is slow to simulate.

    Raises ValueError if the maximum does not attain it.
    """
    plan = (of.most(),) * of.minutes()
    if not of.outcome(plan).is_enough:
        raise ValueError(f"{of.named.name}: {plan[0]} replicas do not attain {GOAL:.0%}")
    while plan[0] > 1 and of.outcome(fewer := (plan[0] - 1,) * len(plan)).is_enough:
        plan = fewer
    return plan


def first(of: Slice) -> Plan:
    plans = [fixed(of), *(of.oracles(share) for share in SHARES)]
    enough = [plan for plan in plans if of.outcome(plan).is_enough]
    return min(enough, key=lambda plan: of.outcome(plan).gpu_hours)


def changed(plan: Plan, draw: Random) -> Plan:
    """Copy of a plan with one replica more or, more often, less for some minutes."""
    begin = draw.randrange(len(plan))
    end = begin + draw.choice([1, 2, 3, 5, 8])
    by = draw.choice([-1, -1, 1])
    return tuple(max(1, n + by) if begin <= i < end else n for i, n in enumerate(plan))


def search(of: Slice, steps: int, draw: Random) -> Iterator[tuple[Plan, Outcome]]:
    """Yield each attaining plan that is cheaper than all before it."""
    plan = best = first(of)
    yield best, of.outcome(best)
    for step in range(steps):
        candidate = changed(plan, draw)
        dearer = of.outcome(candidate).cost - of.outcome(plan).cost
        warmth = WARMTH_GPU_HOURS * (1 - step / steps)
        if dearer <= 0 or draw.random() < exp(-dearer / warmth):
            plan = candidate
        found = of.outcome(candidate)
        if found.is_enough and found.gpu_hours < of.outcome(best).gpu_hours:
            best = candidate
            yield best, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("scenarios", nargs="+", metavar="TRACE-SECONDS")
    parser.add_argument("--traces", type=Path, default=Path("traces"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of slice, pods and search")
    parser.add_argument("--interpreted", action="store_true", help="leave the compiled modules")
    options = parser.parse_args()
    for name in options.scenarios:
        try:
            of = Slice(find_scenario(name, options.traces), options.seed)
            for plan, found in search(of, options.steps, Random(f"{name}/{options.seed}")):
                told = f"{found.attainment:.2%} at {found.gpu_hours:.3f} GPU-hours"
                print(f"{name}: {told}, by the minute {' '.join(map(str, plan))}", flush=True)
        except ValueError as error:
            print(error)


if __name__ == "__main__":
    main()
