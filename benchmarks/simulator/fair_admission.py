"""Admission among tenants and classes under overload, in the simulator.

    python -m benchmarks.simulator.fair_admission [--seeds 3] [--duration 300]

One engine; its capacity is the largest rate of arrivals of which 99 % meet the objectives. Exits with 1 if

    fairness   a tenant that sends its half of the capacity loses more than 5 % of its tokens to one that
               sends 20 times its own half
    overload   requests at 10 times the capacity leave less than 90 % of it in time
    classes    the highest class, a tenth of the capacity, misses more than 1 % of its objectives meanwhile
    batch      interactive requests, half of the capacity, lose more than one point of attainment to batches
"""

import sys

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


class Outcome:
    """Outcome of a tenant: requests that arrived and that were in time, and tokens of those that ended."""

    def __init__(self) -> None:
        self.arrived = self.in_time = self.tokens = 0

    @property
    def attainment(self) -> float:
        return self.in_time / max(1, self.arrived)


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
        outcome.arrived += 1
        outcome.in_time += request.meets(TTFT_S, TPOT_S)
        if request.outcome == "ended":
            outcome.tokens += request.prompt_tokens + request.output_tokens
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


def fairness_loss(capacity: float, seed: int, duration_s: float) -> float:
    """Fraction of its tokens that a tenant with half of the capacity loses to one with 20 times as much."""
    alone = simulate({"small": capacity / 2}, seed, duration_s)["small"]
    beside = simulate({"small": capacity / 2, "flood": capacity * 10}, seed, duration_s)["small"]
    return 1 - beside.tokens / beside.arrived / (alone.tokens / alone.arrived)


def overload(capacity: float, seed: int, duration_s: float) -> tuple[float, float]:
    """Goodput at ten times the capacity, as a fraction of it, and the attainment of the highest class."""
    rates = {"high": capacity / 10, "low": capacity * 9.9}
    outcomes = simulate(rates, seed, duration_s, {"high": 10})
    goodput = sum(each.in_time for each in outcomes.values()) / duration_s
    return goodput / capacity, outcomes["high"].attainment


def batch_harm(capacity: float, seed: int, duration_s: float) -> float:
    """Attainment that interactive requests at half of the capacity lose to batches."""
    alone = simulate({"chat": capacity / 2}, seed, duration_s)["chat"]
    rates = {"chat": capacity / 2, "batch": capacity * 2}
    beside = simulate(rates, seed, duration_s, {"batch": BATCH_PRIORITY})["chat"]
    return alone.attainment - beside.attainment


def main() -> None:
    parser = option_parser(__doc__, seeds=3)
    parser.add_argument("--duration", type=float, default=300.0)
    args = parser.parse_args()
    is_met = True
    for seed in range(args.seeds):
        capacity = find_capacity(seed, args.duration)
        loss = fairness_loss(capacity, seed, args.duration)
        goodput, highest = overload(capacity, seed, args.duration)
        harm = batch_harm(capacity, seed, args.duration)
        is_met &= loss <= 0.05 and goodput >= 0.9 and highest >= 0.99 and harm <= 0.01
        print(
            f"seed {seed}: capacity {capacity:.1f}/s, fairness: loss {loss:.1%}, "
            f"overload: goodput {goodput:.1%}, highest class {highest:.2%}, batch: harm {harm:.2%}"
        )
    sys.exit(not is_met)


if __name__ == "__main__":
    main()
