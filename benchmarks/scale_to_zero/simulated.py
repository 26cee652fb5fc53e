"""Cycles of a service that falls asleep and is woken by a request, in the simulator.

    python -m benchmarks.scale_to_zero.simulated [--cycles 1000] [--scenario scale-to-zero]

Runs the scenario with one seed after the other until it has that many wake-ups. Prints the number of lost
requests, and the delays of those that woke the service: time to first token minus start-up time. Exits with 1
if a request was lost, or if more than 1 % of the delays are above MAX_DELAY_S.
"""

import sys
from collections.abc import Iterator
from statistics import median, quantiles

from benchmarks.options import option_parser

from penstock.sim import scenario
from penstock.sim.run import run
from penstock.sim.scenario import Scenario
from penstock.sim.service import Service

POLICY = "penstock"
# Bar for the first token minus the start-up time, in seconds: the wake-up call, and a prompt that has the
# engine to itself.
MAX_DELAY_S = 1.0


def delays_s(service: Service) -> Iterator[float]:
    """First token minus start-up of the request that woke the service, for each wake-up with an answer."""
    requests = sorted(service.gateway.requests, key=lambda request: request.arrival_s)
    ready_s = [census.at_s for census in service.fleet.census if census.ready]
    for record in service.scaler.records:
        if record.before or not record.decision.desired:
            continue
        waiting = (
            request
            for request in requests
            if request.first_token_s is not None
            and request.arrival_s <= record.at_s < request.first_token_s
        )
        first = next(waiting, None)
        started_s = next((at_s for at_s in ready_s if at_s > record.at_s), None)
        if first is not None and first.first_token_s is not None and started_s is not None:
            startup_s = started_s - record.at_s
            yield first.first_token_s - first.arrival_s - startup_s


def measure(wanted: Scenario, cycles: int) -> tuple[list[float], int, int]:
    """The delays of at least so many cycles, and how many requests came and were lost."""
    delays, num_requests, num_lost, seed = list[float](), 0, 0, 0
    while len(delays) < cycles:
        [service] = run(wanted, POLICY, seed).services
        found = [*delays_s(service)]
        if not found:
            raise SystemExit(
                f"seed {seed} of {wanted.name} has no wake-up: choose another scenario"
            )
        delays += found
        num_requests += len(service.gateway.requests)
        num_lost += sum(request.outcome != "ended" for request in service.gateway.requests)
        seed += 1
    return delays, num_requests, num_lost


def main() -> int:
    options = option_parser(__doc__, cycles=1000, scenario="scale-to-zero").parse_args()
    delays, num_requests, num_lost = measure(scenario.load(options.scenario), options.cycles)
    p99 = quantiles(delays, n=100, method="inclusive")[98]
    print(
        f"{len(delays):,} wake-ups, {num_requests:,} requests, {num_lost} lost; first token minus start-up: "
        f"median {median(delays):.3f} s, p99 {p99:.3f} s, at most {max(delays):.3f} s"
    )
    return 1 if num_lost or p99 > MAX_DELAY_S else 0


if __name__ == "__main__":
    sys.exit(main())
