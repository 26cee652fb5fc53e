"""Admission among tenants and classes under overload, in the simulator.

    python -m benchmarks.simulator.fair_admission [--seeds 10] [--duration 100]

One engine. Its capacity has two definitions:

    glossary    the largest rate of arrivals of which 99 % meet the objectives
    largest     the largest rate of requests that meet them, at any rate of arrivals

Prints the mean over the seeds and its 95 % interval, for each definition. Exits with 1 if a mean misses a
bar:

    fairness   a tenant that sends its half of the capacity loses at most 5 % of its tokens to one that sends
               20 times its own half
    overload   requests at 10 times the capacity leave at least 90 % of it in time
    classes    the highest class, a tenth of the capacity, misses at most 1 % of its objectives meanwhile
    refusals   99 % of the refused requests wait at most 50 ms before
    batch      interactive requests, half of the capacity, lose at most one point of attainment to batches
"""

import sys
from collections.abc import Callable

from benchmarks.options import option_parser

from penstock.core.tenants.tenant import BATCH_PRIORITY
from penstock.sim.run import run
from penstock.sim.scenario import Scenario, Service
from penstock.sim.workload.generate import Rate
from penstock.sim.workload.lengths import LogNormal, Mix, RequestClass

TTFT_S, TPOT_S = 1.0, 0.06
PROMPT, OUTPUT = LogNormal(median=600, p99=4000, max=8000), LogNormal(median=120, p99=600, max=1000)
# Requests a second between which the capacity of the engine is searched.
LEAST_RATE, MOST_RATE = 4, 64
# Multiples of the glossary's capacity at which the largest rate in time is looked for.
MULTIPLES = (1.0, 1.25, 1.5, 2.0, 4.0, 10.0)
# Two-sided 97.5 % quantiles of Student's t by the number of seeds less one.
QUANTILES = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


class Outcome:
    """Outcome of a tenant: its requests, those in time, tokens that it asked for and that ended, refusals.

    refused_s: how long each refused request had waited.
    """

    def __init__(self) -> None:
        self.arrived = self.in_time = self.offered_tokens = self.ended_tokens = 0
        self.refused_s: list[float] = []

    @property
    def attainment(self) -> float:
        return self.in_time / max(1, self.arrived)

    @property
    def served_share(self) -> float:
        """Share of its tokens that it got."""
        return self.ended_tokens / max(1, self.offered_tokens)


def simulate(
    rates: dict[str, float], seed: int, duration_s: float, priorities: dict[str, int] | None = None
) -> dict[str, Outcome]:
    """Simulate tenants. rates: requests a second by tenant. priorities: 0 for those that are not named."""
    of = priorities or {}
    classes = tuple(
        RequestClass(
            prompt=PROMPT, output=OUTPUT, weight=rate, tenant=tenant, priority=of.get(tenant, 0)
        )
        for tenant, rate in rates.items()
    )
    total = sum(rates.values())
    service = Service(
        profile="llama-3.1-8b-h100", ttft_s=TTFT_S, tpot_s=TPOT_S, max_replicas=1, initial_replicas=1,
        workload=Rate(points=((0.0, total), (duration_s, total)), mixes=(Mix(classes=classes),)),
    )  # fmt: skip
    scenario = Scenario(name="tenants", duration_s=duration_s, tail_s=120.0, services=(service,))
    outcomes = {tenant: Outcome() for tenant in rates}
    for request in run(scenario, "static", seed, {"replicas": "1"}).services[0].gateway.requests:
        outcome = outcomes[request.requester.tenant]
        tokens = request.prompt_tokens + request.output_tokens
        outcome.arrived += 1
        outcome.in_time += request.meets(TTFT_S, TPOT_S)
        outcome.offered_tokens += tokens
        outcome.ended_tokens += tokens if request.outcome == "ended" else 0
        if request.outcome == "shed":
            outcome.refused_s.append((request.end_s or 0.0) - request.arrival_s)
    return outcomes


def find_capacity(seed: int, duration_s: float) -> float:
    """The largest whole rate of arrivals of which 99 % meet the objectives, by bisection."""
    least, most = LEAST_RATE, MOST_RATE
    while most - least > 1:
        rate = (least + most) // 2
        if simulate({"": float(rate)}, seed, duration_s)[""].attainment >= 0.99:
            least = rate
        else:
            most = rate
    return float(least)


def find_largest_rate(capacity: float, seed: int, duration_s: float) -> float:
    """The largest rate of requests in time, over multiples of the capacity."""
    rates = (capacity * multiple for multiple in MULTIPLES)
    return max(simulate({"": rate}, seed, duration_s)[""].in_time / duration_s for rate in rates)


def fairness_loss(capacity: float, seed: int, duration_s: float) -> float:
    """Fraction of its tokens that a tenant with half of the capacity loses to one with 20 times as much."""
    alone = simulate({"small": capacity / 2}, seed, duration_s)["small"]
    beside = simulate({"small": capacity / 2, "flood": capacity * 10}, seed, duration_s)["small"]
    return 1 - beside.served_share / alone.served_share


def overload(capacity: float, seed: int, duration_s: float) -> tuple[float, float, float]:
    """Goodput at ten times the capacity, in parts of it, attainment of the highest class, p99 of refusals."""
    rates = {"high": capacity / 10, "low": capacity * 9.9}
    outcomes = simulate(rates, seed, duration_s, {"high": 10})
    goodput = sum(each.in_time for each in outcomes.values()) / duration_s
    refused_s = sorted(wait_s for each in outcomes.values() for wait_s in each.refused_s)
    return goodput / capacity, outcomes["high"].attainment, refused_s[int(0.99 * len(refused_s))]


def batch_harm(capacity: float, seed: int, duration_s: float) -> float:
    """Attainment that interactive requests at half of the capacity lose to batches."""
    alone = simulate({"chat": capacity / 2}, seed, duration_s)["chat"]
    rates = {"chat": capacity / 2, "batch": capacity * 2}
    beside = simulate(rates, seed, duration_s, {"batch": BATCH_PRIORITY})["chat"]
    return alone.attainment - beside.attainment


# Bars on the means.
BARS: dict[str, Callable[[float], bool]] = {
    "loss": lambda value: value <= 0.05,
    "goodput": lambda value: value >= 0.9,
    "highest class": lambda value: value >= 0.99,
    "refusals p99 s": lambda value: value <= 0.05,
    "batch harm": lambda value: value <= 0.01,
}


def measure(capacity: float, seed: int, duration_s: float) -> dict[str, float]:
    """The value of each bar."""
    values = (
        fairness_loss(capacity, seed, duration_s),
        *overload(capacity, seed, duration_s),
        batch_harm(capacity, seed, duration_s),
    )
    return dict(zip(BARS, values, strict=True))


def describe(values: list[float]) -> str:
    """The mean, with the 95 % interval of Student's t, and the extremes."""
    mean = sum(values) / len(values)
    squares = sum((value - mean) ** 2 for value in values)
    quantile = QUANTILES.get(len(values) - 1, 2.2)
    half = quantile * (squares / max(1, len(values) - 1) / len(values)) ** 0.5
    return f"{mean:.4f} ± {half:.4f} ({min(values):.4f} to {max(values):.4f})"


def main() -> None:
    parser = option_parser(__doc__, seeds=10)
    parser.add_argument("--duration", type=float, default=100.0)
    args = parser.parse_args()
    results: dict[str, dict[str, list[float]]] = {}
    for seed in range(args.seeds):
        capacity = find_capacity(seed, args.duration)
        largest = find_largest_rate(capacity, seed, args.duration)
        for name, rate in (("glossary", capacity), ("largest", largest)):
            values = {"capacity": rate, **measure(rate, seed, args.duration)}
            for what, value in values.items():
                results.setdefault(name, {}).setdefault(what, []).append(value)
            text = ", ".join(f"{what} {value:.4f}" for what, value in values.items())
            print(f"seed {seed}, {name}: {text}", flush=True)
    is_met = True
    for name, by_bar in results.items():
        for what, found in by_bar.items():
            print(f"{name}: {what} {describe(found)}")
            is_met &= what not in BARS or BARS[what](sum(found) / len(found))
    sys.exit(not is_met)


if __name__ == "__main__":
    main()
