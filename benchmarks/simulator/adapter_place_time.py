"""Measures the processor time of placement and routing of adapters.

    python -m benchmarks.simulator.adapter_place_time --adapters 2000 --pods 64

In each tick arrive requests by Zipf's law. Prints the median, least and greatest time over all ticks, in
milliseconds: of the demand estimate, of `place`, and of `route_adapter` for an adapter with and without a
copy. At last `place` loads a minimum copy of an adapter for each fourth slot, on empty pods.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from statistics import median
from time import process_time

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.demand import AdapterCounts, DemandState, estimate_demand
from penstock.core.adapters.place import place
from penstock.core.adapters.replica import AdapterReplica, Copy
from penstock.core.adapters.route import route_adapter

SLOTS = 16
TICKS, TICK_S, ARRIVALS_PER_TICK = 40, 2.0, 300

times_ms: dict[str, list[float]] = defaultdict(list)


@contextmanager
def measured(name: str) -> Iterator[None]:
    begin_s = process_time()
    yield
    times_ms[name].append(1e3 * (process_time() - begin_s))


def draw_pods(
    num_pods: int, names: Sequence[str], weights: Sequence[float], random: Random
) -> list[AdapterReplica]:
    """Full pods with copies of the adapters, drawn by weight."""
    pods = []
    for index in range(num_pods):
        copies: dict[str, Copy] = {}
        while len(copies) < SLOTS:
            name = random.choices(names, weights)[0]
            copies[name] = Copy("Resident", random.randrange(2))
        pods.append(
            AdapterReplica(
                pod=f"p{index}",
                slots=SLOTS,
                copies=copies,
                load=float(index),
                loads_at_once=1,
                side="",
                draining_copies=frozenset(),
                backing_off_copies=frozenset(),
            )
        )
    return pods


def measure(num_adapters: int, num_pods: int, random: Random) -> None:
    versions = [AdapterVersion(f"a{i}", f"pvc://claim/{i}") for i in range(num_adapters)]
    by_name = {version.engine_name: version for version in versions}
    names = list(by_name)
    weights = [1 / (rank + 1) for rank in range(num_adapters)]
    pods = draw_pods(num_pods, names[:-1], weights[:-1], random)
    state: DemandState | None = None
    arrivals: dict[str, int] = dict.fromkeys(names, 0)
    for tick in range(TICKS):
        for name in random.choices(names, weights, k=ARRIVALS_PER_TICK):
            arrivals[name] += 1
        counts = {
            name: AdapterCounts(arrivals[name], in_flight=random.randrange(1 + int(40 * weight)))
            for name, weight in zip(names, weights, strict=True)
        }
        with measured("estimate_demand"):
            state = estimate_demand(counts, state, tick * TICK_S)
        with measured("place"):
            place(versions, pods, state.demand)
        with measured("route_adapter, with a copy"):
            route_adapter(names[0], pods, by_name, state.demand)
        with measured("route_adapter, without"):
            route_adapter(names[-1], pods, by_name, state.demand)
    number = min(num_adapters, num_pods * SLOTS // 4)
    wanted = [AdapterVersion(v.name, v.uri, Placement(min_copies=1)) for v in versions[:number]]
    empty = [replace(pod, copies={}, load=0.0) for pod in pods]
    with measured(f"place, {number} minimums on empty pods"):
        place([*wanted, *versions[number:]], empty, {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapters", type=int, default=2000)
    parser.add_argument("--pods", type=int, default=64)
    options = parser.parse_args()
    measure(options.adapters, options.pods, Random(0))
    for name, each in times_ms.items():
        print(f"{name}: {median(each):.3f} ({min(each):.3f} to {max(each):.3f}) ms")


if __name__ == "__main__":
    main()
