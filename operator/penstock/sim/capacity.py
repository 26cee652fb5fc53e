"""Measures the capacity of one replica: the highest rate at which the objectives hold."""

from penstock.sim.report import summaries_of
from penstock.sim.run import run
from penstock.sim.scenario import Scenario, Service
from penstock.sim.workload.generate import Rate
from penstock.sim.workload.lengths import Mix

RUN_S = 1800.0


def sustained_rps(
    service: Service, mix: Mix, attainment: float = 0.99, seeds: int = 2, steps: int = 7
) -> float:
    """Highest Poisson arrival rate, in requests/s, with at least `attainment`; found by bisection.

    Each trial simulates half an hour. The service's own workload is not used.
    """
    low, high = 0.0, 1.0
    while _attainment(service, mix, high, seeds) >= attainment:
        low, high = high, 2 * high
    for _ in range(steps):
        middle = (low + high) / 2
        if _attainment(service, mix, middle, seeds) >= attainment:
            low = middle
        else:
            high = middle
    return low


def _attainment(service: Service, mix: Mix, rps: float, seeds: int) -> float:
    workload = Rate(points=((0.0, rps), (RUN_S, rps)), mixes=(mix,))
    alone = service.model_copy(
        update={"workload": workload, "min_replicas": 1, "max_replicas": 1, "initial_replicas": 1}
    )
    scenario = Scenario(name="capacity", duration_s=RUN_S, services=(alone,))
    shares = [summaries_of(run(scenario, "static", seed))[0].attainment for seed in range(seeds)]
    return sum(shares) / seeds
