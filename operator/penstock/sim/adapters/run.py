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
from penstock.sim.adapters.bound import Everywhere, fewest_loads
from penstock.sim.adapters.penstock import Penstock
from penstock.sim.adapters.pool import Pool, Rule
from penstock.sim.adapters.workload import AdapterWorkload, calls, load_times
from penstock.sim.profile import Profile, profile
from penstock.sim.report import quantile

RULES: Mapping[str, Callable[[], Rule]] = {
    "penstock": Penstock,
    "lru-random": RandomLru,
    "all-pods": AllPods,
    "least-adapters": LeastAdapters,
    "resident-first": ResidentFirst,
    "dynamo": Dynamo,
    "dynamo-eager": lambda: Dynamo(is_eager=True),
    "bound": Everywhere,
}
DESCRIPTIONS: Mapping[str, str] = {
    "penstock": "the operator's placement and the gateway's routing",
    "lru-random": "LRU on each engine, random routing",
    "all-pods": "AIBrix with adapters on all pods: the least open requests",
    "least-adapters": "AIBrix's default: each adapter on one pod",
    "resident-first": "no placement; engines with a copy, then the least open requests",
    "dynamo": "Dynamo's copies in proportion to demand, placed by rendezvous hashing",
    "dynamo-eager": "as dynamo, with added copies loaded at once",
    "bound": "no rule: TTFT without any load, and the fewest loads that any rule can have",
}
# Requests that come before this time, in seconds, are not counted: the pods start empty.
WARM_UP_S = 300.0
# Time after the last arrival, in seconds, until which answers count.
DRAIN_S = 300.0
# Sequences in one batch. An engine with 16 slots cannot fill larger ones with requests of 16 adapters.
MAX_NUM_SEQS = 32
PROFILE = "llama-3.3-70b-h100-tp4"


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


def engine_profile() -> Profile:
    return profile(PROFILE).model_copy(update={"max_num_seqs": MAX_NUM_SEQS})


def run(
    rule: str,
    workload: AdapterWorkload,
    seed: int,
    num_pods: int = 8,
    slots: int = 16,
    engine: Profile | None = None,
) -> Summary:
    """Run one rule with one seed. engine: of the pods; None: `engine_profile`."""
    engine = engine or engine_profile()
    drawn = calls(workload, seed)
    loads = load_times(workload, seed)
    is_bound = rule == "bound"
    if is_bound:
        pool = Pool(RULES[rule](), engine, num_pods, len(loads), [0.0] * len(loads))
    else:
        pool = Pool(RULES[rule](), engine, num_pods, slots, loads, workload.loads_at_once)
    num_before: list[int] = []
    pool.clock.schedule_at(WARM_UP_S, lambda: num_before.append(pool.num_loads))
    num_at_end: list[int] = []
    pool.clock.schedule_at(workload.duration_s, lambda: num_at_end.append(pool.num_loads))
    pool.run(drawn, workload.duration_s + DRAIN_S)
    num_loads = num_at_end[0] - num_before[0]
    if is_bound:
        num_loads = fewest_loads(drawn, num_pods * slots, WARM_UP_S)
    return _summary(pool, num_loads, workload.duration_s)


def _summary(pool: Pool, num_loads: int, duration_s: float) -> Summary:
    end_s = duration_s + DRAIN_S
    counted = [
        (request, is_miss)
        for request, is_miss in zip(pool.totals.requests, pool.totals.misses, strict=True)
        if request.arrival_s >= WARM_UP_S
    ]
    ttft_s = sorted(
        end_s - request.arrival_s if request.ttft_s is None else request.ttft_s
        for request, _ in counted
    )
    served = sum(
        each.first_token_s is not None and WARM_UP_S <= each.first_token_s < duration_s
        for each in pool.totals.requests
    )
    return Summary(
        ttft_p50_s=quantile(ttft_s, 0.5),
        ttft_p99_s=quantile(ttft_s, 0.99),
        ttft_mean_s=sum(ttft_s) / len(ttft_s),
        loads_per_min=num_loads / (duration_s - WARM_UP_S) * 60,
        miss_share=sum(is_miss for _, is_miss in counted) / len(counted),
        refused=sum(request.outcome == "shed" for request, _ in counted),
        requests=len(counted),
        loads_per_request=num_loads / len(counted),
        loads_per_served=num_loads / served,
    )
