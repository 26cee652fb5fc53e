"""Runs one rule on one drawn workload, and sums it up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.sim.adapters.baselines import (
    AllPods,
    Dynamo,
    LeastAdapters,
    RandomLru,
    ResidentFirst,
)
from penstock.sim.adapters.bound import fewest_loads, without_loads
from penstock.sim.adapters.penstock import Penstock
from penstock.sim.adapters.pool import Pool, Rule
from penstock.sim.adapters.scenario import WARM_UP_S, AdapterScenario
from penstock.sim.adapters.workload import requests_of
from penstock.sim.report import quantile

# Rules by name, each with what it is.
RULES: Mapping[str, tuple[Callable[[], Rule], str]] = {
    "penstock": (Penstock, "the operator's placement and the gateway's routing"),
    "lru-random": (RandomLru, "LRU on each engine, random routing"),
    "all-pods": (AllPods, "AIBrix with adapters on all pods: the least open requests"),
    "least-adapters": (LeastAdapters, "AIBrix's default: each adapter on one pod"),
    "resident-first": (
        ResidentFirst,
        "no placement; engines with a copy, then the least open requests",
    ),
    "dynamo": (Dynamo, "Dynamo's copies in proportion to demand, placed by rendezvous hashing"),
    "dynamo-eager": (lambda: Dynamo(is_eager=True), "as dynamo, with added copies loaded at once"),
    "bound": (
        AllPods,
        "no rule: TTFT without any load, and the fewest loads that any rule can have",
    ),
}
# Time after the last arrival, in seconds, until which answers count.
DRAIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of the requests after the warm-up.

    Those that were refused, or had no first token DRAIN_S after the last arrival, count with their wait until
    then.
    """

    ttft_p50_s: float
    ttft_p99_s: float
    ttft_mean_s: float
    loads_per_min: float
    miss_share: float  # requests whose adapter was in memory nowhere when they came
    refused: int
    requests: int
    loads_per_request: float
    # Loads per request that got its first token while loads were counted; files of older runs have none
    loads_per_served: float = 0.0


def run(scenario: AdapterScenario, rule: str, seed: int) -> Summary:
    """Run one rule with one seed."""
    adapters, duration_s = scenario.adapters, scenario.duration_s
    requests = requests_of(adapters, duration_s, seed)
    is_bound = rule == "bound"
    make, _ = RULES[rule]
    pool = Pool(make(), without_loads(adapters) if is_bound else adapters, seed)
    num_loads: list[int] = []
    for at_s in (WARM_UP_S, duration_s):
        pool.clock.schedule_at(at_s, lambda: num_loads.append(pool.num_loads))
    pool.run(requests, duration_s + DRAIN_S)
    before, at_end = num_loads
    if is_bound:
        slots = adapters.pods * adapters.slots
        return _summary(pool, fewest_loads(requests, slots, WARM_UP_S), duration_s)
    return _summary(pool, at_end - before, duration_s)


def _summary(pool: Pool, num_loads: int, duration_s: float) -> Summary:
    end_s = duration_s + DRAIN_S
    counted = [request for request in pool.requests if request.arrival_s >= WARM_UP_S]
    ttft_s = sorted(
        end_s - request.arrival_s if request.ttft_s is None else request.ttft_s
        for request in counted
    )
    served = sum(
        each.first_token_s is not None and WARM_UP_S <= each.first_token_s < duration_s
        for each in pool.requests
    )
    return Summary(
        ttft_p50_s=quantile(ttft_s, 0.5),
        ttft_p99_s=quantile(ttft_s, 0.99),
        ttft_mean_s=sum(ttft_s) / len(ttft_s),
        loads_per_min=num_loads / (duration_s - WARM_UP_S) * 60,
        miss_share=sum(request.request_id in pool.missed for request in counted) / len(counted),
        refused=sum(request.outcome == "shed" for request in counted),
        requests=len(counted),
        loads_per_request=num_loads / len(counted),
        loads_per_served=num_loads / served,
    )
