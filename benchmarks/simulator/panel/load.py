"""Draws a load, which is a whole scenario, from a seed.

The mean size is drawn first; from it and the capacity of a replica in closed form follows the arrival rate.
No code of the scaling rules is used, so that a change of a rule never changes a load.
"""

from dataclasses import dataclass
from math import ceil
from random import Random

from benchmarks.simulator.panel.lengths import NAMES, Lengths, draw_lengths
from benchmarks.simulator.panel.replica import Demand, demand_of, iteration_s, replica_rps
from benchmarks.simulator.panel.shapes import SHAPES, area, log_uniform

from penstock.sim.profile import profile
from penstock.sim.scenario import Scenario, Service
from penstock.sim.workload.arrivals import Points
from penstock.sim.workload.generate import Closed, Rate

CLOSED = "closed-loop"
KINDS = (*SHAPES, CLOSED)
TUNING_SEEDS = range(1000, 1060)

STARTUPS_S = (20.0, 300.0)
MEAN_REPLICAS = (1.0, 40.0)
# A load whose requests would be too many is made smaller, down to this mean size.
LEAST_REPLICAS = 2.0
# Tokens of a load by `Demand.weight_tokens`, so that a run takes 1 to 8 s.
TOKENS = (4e6, 20e6)
GAP_CV = (0.5, 15.0)
# Duration: at least half an hour and 12 starts of a pod, so that scaling can matter; at most four hours.
LEAST_S, LEAST_STARTUPS, MOST_S = 1800.0, 12.0, 4 * 3600.0
# A load stays at its first level for 2 start-ups and a minute.
SETTLED_STARTUPS, SETTLED_S = 2.0, 60.0
# Initial replicas: this multiple of the need of the settled time.
FIRST_SHARE = 1.25
MAX_REPLICAS = 100
# Objectives: multiples of the latency at an idle engine, of a long prompt and of a small batch.
TTFT_FACTOR, LEAST_TTFT_S = (2.0, 8.0), 0.5
TPOT_FACTOR = (1.3, 4.0)
SMALL_BATCH = 8
# Utilization at which the mean size is planned; large services need less spare capacity.
UTILIZATION = 0.75
ATTAINMENTS = (0.95, 0.99, 0.99, 0.99)


@dataclass(frozen=True, slots=True)
class Load:
    """A load. kind, lengths: its classes. cv: coefficient of variation of the gaps.

    replicas: mean size that the rate was drawn for.
    """

    seed: int
    kind: str
    lengths: str
    cv: float
    replicas: float
    expected_requests: float
    scenario: Scenario

    @property
    def service(self) -> Service:
        return self.scenario.services[0]


def draw_load(seed: int) -> Load:
    """Draw the load of a seed. Kinds and lengths take turns, so that every class occurs equally often."""
    draw = Random(f"panel/{seed}")
    turn, index = divmod(seed, len(KINDS))
    kind, name = KINDS[index], NAMES[(turn + index) % len(NAMES)]
    startup_s = round(log_uniform(draw, *STARTUPS_S))
    lengths = draw_lengths(draw, name, 1.0)
    demand = demand_of(lengths, draw.getrandbits(32))
    ttft_s, tpot_s = _objectives(draw, lengths, demand)
    rps = UTILIZATION * replica_rps(profile(lengths.profile), demand, tpot_s)
    least_s = max(LEAST_S, LEAST_STARTUPS * startup_s)
    requests = log_uniform(draw, *TOKENS) / demand.weight_tokens
    replicas = log_uniform(draw, *MEAN_REPLICAS)
    replicas = min(replicas, max(LEAST_REPLICAS, requests / (rps * least_s)))
    duration_s = round(min(MOST_S, max(least_s, requests / (replicas * rps))))
    lengths = _stretched(lengths, duration_s)
    settled_s = SETTLED_STARTUPS * startup_s + SETTLED_S
    workload: Rate | Closed
    cv = 1.0
    if kind == CLOSED:
        workload, first = _closed(draw, lengths, demand, replicas, rps, duration_s, settled_s)
    else:
        points = _scaled(SHAPES[kind](draw, duration_s, settled_s), replicas * rps)
        cv = round(_cv(draw, demand, replicas, ttft_s), 2)
        workload = Rate(points=tuple(points), cv=cv, mixes=lengths.mixes)
        first = _mean(points, settled_s) / rps
    service = Service(
        profile=lengths.profile, workload=workload, ttft_s=ttft_s, tpot_s=tpot_s,
        attainment=draw.choice(ATTAINMENTS), max_replicas=MAX_REPLICAS, startup_s=startup_s,
        initial_replicas=max(1, ceil(FIRST_SHARE * first)),
    )  # fmt: skip
    tail_s = ttft_s + service.max_wait_s + 1.5 * tpot_s * demand.max_output_tokens
    scenario = Scenario(
        name=f"panel-{seed}", duration_s=duration_s, tail_s=round(tail_s), services=(service,),
        description=f"{kind}, {name}",
    )  # fmt: skip
    return Load(seed, kind, name, cv, replicas, replicas * rps * duration_s, scenario)


def _objectives(draw: Random, lengths: Lengths, demand: Demand) -> tuple[float, float]:
    """Objectives that an engine with little load attains."""
    engine = profile(lengths.profile)
    ttft_s = log_uniform(draw, *TTFT_FACTOR) * (demand.long_prefill_s + engine.times.fixed_s)
    tpot_s = log_uniform(draw, *TPOT_FACTOR) * iteration_s(engine, demand, SMALL_BATCH)
    return round(max(LEAST_TTFT_S, ttft_s), 2), round(tpot_s, 3)


def _cv(draw: Random, demand: Demand, replicas: float, ttft_s: float) -> float:
    """Coefficient of variation of gaps, such that the replicas prefill a clump in time without any cache.

    With a coefficient c a clump has up to 2·c² requests.
    """
    clump = (replicas + 1) * ttft_s / demand.cold_prefill_s
    low, high = GAP_CV
    return log_uniform(draw, low, min(high, max(1.0, (clump / 2) ** 0.5)))


def _closed(
    draw: Random,
    lengths: Lengths,
    demand: Demand,
    replicas: float,
    rps: float,
    duration_s: float,
    settled_s: float,
) -> tuple[Closed, float]:
    """Closed loop in stages of a constant number of users, and the replicas for the first stage."""
    think_s = log_uniform(draw, 2, 60)
    answer_s = demand.output_tokens * iteration_s(profile(lengths.profile), demand, SMALL_BATCH)
    users = replicas * rps * (think_s + answer_s)
    count = min(draw.randint(1, 6), max(1, int(duration_s / settled_s)))
    levels = [log_uniform(draw, 0.3, 3) for _ in range(count)]
    scale = users * count / sum(levels)
    numbers = [(i * duration_s / count, max(1, round(scale * x))) for i, x in enumerate(levels)]
    workload = Closed(users=tuple(numbers), think_s=think_s, mixes=lengths.mixes)
    return workload, replicas * numbers[0][1] / users


def _stretched(lengths: Lengths, duration_s: float) -> Lengths:
    """Lengths that were drawn over one second, over a duration."""
    mixes = [m.model_copy(update={"from_s": m.from_s * duration_s}) for m in lengths.mixes]
    return Lengths(tuple(mixes), lengths.profile)


def _scaled(points: Points, mean_rps: float) -> Points:
    scale = mean_rps * points[-1][0] / area(points)
    return [(at_s, scale * rate) for at_s, rate in points]


def _mean(points: Points, until_s: float) -> float:
    """Mean rate from the start until a time."""
    inside = [point for point in points if point[0] <= until_s]
    (last_s, last), (next_s, after) = inside[-1], points[min(len(inside), len(points) - 1)]
    if next_s > last_s:
        rate = last + (after - last) * (until_s - last_s) / (next_s - last_s)
        inside.append((until_s, rate))
    return area(inside) / inside[-1][0]
