"""The smallest fixed number of replicas that attains the objectives of a load, found by simulation.

A fixed number starts with the load's initial replicas, as all rules do, and pays for its starts.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.simulator.panel.load import CLOSED, MAX_REPLICAS, Load
from benchmarks.simulator.panel.requests import arrivals_of

from penstock.sim import service
from penstock.sim.clock import Clock
from penstock.sim.quota import Quota
from penstock.sim.report import summarize

# A run is stopped at these shares of its time once it can no longer attain.
CHECKS = 24
# First guess over the size that the load was drawn for, and the factor of the next guesses.
FIRST, STEP = 1.3, 1.35


@dataclass(frozen=True, slots=True)
class BestFixed:
    replicas: int
    attainment: float
    gpu_hours: float


def best_fixed(load: Load) -> BestFixed | None:
    """Best fixed number; None if MAX_REPLICAS do not attain the objectives."""
    found: dict[int, BestFixed | None] = {}

    def attains(replicas: int) -> bool:
        found[replicas] = _attempt(load, replicas)
        return found[replicas] is not None

    replicas = smallest(attains, round(FIRST * load.replicas))
    return None if replicas is None else found[replicas]


def smallest(attains: Callable[[int], bool], guess: int, most: int = MAX_REPLICAS) -> int | None:
    """Smallest number that attains, if all above it do: galloping from a guess, then bisection."""
    low, high = 0, most + 1
    trial = min(most, max(1, guess))
    while high - low > 1:
        if attains(trial):
            high = trial
            trial = min(high - 1, int(high / STEP)) if low == 0 else (low + high) // 2
        else:
            low = trial
            trial = min(most, int(low * STEP) + 1) if high > most else (low + high) // 2
        trial = max(1, trial)
    return None if high > most else high


def _attempt(load: Load, replicas: int) -> BestFixed | None:
    """Run with a fixed number; None if it misses the objectives."""
    scenario, clock = load.scenario, Clock()
    knobs = {"replicas": str(replicas)}
    run = service.Service(load.service, scenario, clock, Quota(), load.seed, "static", knobs)
    allowed = float("inf")
    if load.kind != CLOSED:
        allowed = (1 - load.service.attainment) * len(arrivals_of(load))
    run.begin()
    for check in range(1, CHECKS + 1):
        clock.run(scenario.duration_s * check / CHECKS)
        if _missed(run) > allowed:
            return None
    clock.run(scenario.duration_s + scenario.tail_s)
    summary = summarize(run, scenario.duration_s)
    if summary.attainment < load.service.attainment:
        return None
    return BestFixed(replicas, summary.attainment, summary.gpu_hours)


def _missed(run: service.Service) -> int:
    """Number of requests that ended without meeting their objectives."""
    objectives = run.spec.objectives
    return sum(
        request.outcome != "open" and not request.meets(objectives.ttft_s, objectives.tpot_s)
        for request in run.gateway.requests
    )
