"""Measures the capacity of one replica: the highest rate at which the objectives hold."""

from penstock.sim.report import summaries_of
from penstock.sim.run import run
from penstock.sim.scenario import Scenario, Service
from penstock.sim.workload.generate import Rate
from penstock.sim.workload.lengths import Mix

RUN_S = 1800.0


def sustained_rps(
    service: Service,
    mix: Mix,
    attainment: float = 0.99,
    seeds: int = 2,
    steps: int = 7,
    *,
    run_s: float = RUN_S,
    first_seed: int = 0,
    first_rps: float = 1.0,
) -> float:
    """Highest Poisson arrival rate, in requests/s, with at least `attainment`; found by bisection.

    run_s: simulated time of each trial. first_rps: rate of the first trial; it is doubled until a trial
    fails. The service's own workload is not used.
    """

    def is_sustained(rps: float) -> bool:
        scenario = Scenario(
            name="capacity", duration_s=run_s, services=(alone(service, mix, rps, run_s),)
        )
        shares = [
            summaries_of(run(scenario, "static", seed))[0].attainment
            for seed in range(first_seed, first_seed + seeds)
        ]
        return sum(shares) / seeds >= attainment

    low, high = 0.0, first_rps
    while is_sustained(high):
        low, high = high, 2 * high
    for _ in range(steps):
        middle = (low + high) / 2
        if is_sustained(middle):
            low = middle
        else:
            high = middle
    return low


def alone(service: Service, mix: Mix, rps: float, run_s: float) -> Service:
    """The service with one replica and Poisson arrivals at a constant rate."""
    workload = Rate(points=((0.0, rps), (run_s, rps)), mixes=(mix,))
    return service.model_copy(
        update={"workload": workload, "min_replicas": 1, "max_replicas": 1, "initial_replicas": 1}
    )
