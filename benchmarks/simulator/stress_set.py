"""Runs the eleven scenarios of the stress set under each rule with its published knobs.

    python -m benchmarks.simulator.stress_set [--seeds 3] [--rules penstock dynamo] [--scenarios step-x3]

Finished runs are kept in the cache and reused while the source of the rule is unchanged; use a new folder
after a change of the simulator. For each scenario and rule it prints the mean over seeds of

    attainment   share of arrivals within both objectives; shed and failed requests are misses
    recovery     seconds from the disturbance to the end of the last 30 s below 95%; 0 if there is none
    overshoot    largest number of replicas, divided by the largest need with replicas at 85%
    reversals    changes of direction within ten minutes
    blind downs  scale-downs while metrics are missing or stale

Exits with 1 if Penstock's rule reverses outside flash crowds, or scales down while it is blind.
"""

import sys
from itertools import pairwise
from pathlib import Path
from statistics import mean

from benchmarks.options import option_parser
from benchmarks.simulator.run_cache import Figures, figures
from rich.console import Console
from rich.table import Table

from penstock.sim import policies, scenario
from penstock.sim.baselines.registry import PUBLISHED
from penstock.sim.faults import Blackout, Frozen
from penstock.sim.report import changes, summarize
from penstock.sim.run import Run
from penstock.sim.scenario import Scenario
from penstock.sim.service import Service
from penstock.sim.workload.generate import Closed, Rate

STRESS = (
    "step-x3", "flash-crowd-in-cold-start", "metric-blackout", "stale-series", "slow-node",
    "length-mix-shift", "prefix-hit-collapse", "pod-crash-in-scale-up", "quota-cap", "load-to-zero",
    "closed-loop",
)  # fmt: skip
# In both scenarios the load rises and falls within minutes.
FLASH = {"flash-crowd-in-cold-start", "quota-cap"}
OURS = "penstock"
WINDOW_S, RECOVERED = 30.0, 0.95
FULL = 0.85


def disturbed_s(chosen: Scenario) -> float:
    """Time of the first change of load or of the first fault."""
    service = chosen.services[0]
    times = [fault.from_s for fault in chosen.faults if fault.from_s > 0]
    load = service.workload
    assert isinstance(load, Rate | Closed)
    times += [mix.from_s for mix in load.mixes if mix.from_s > 0]
    steps = load.users if isinstance(load, Closed) else load.points
    times += [at_s for (at_s, _), (_, rate) in pairwise(steps) if rate != steps[0][1]]
    return min(times)


def recovery_s(service: Service, since_s: float) -> float:
    spec, windows = service.spec, {}
    for request in service.gateway.requests:
        met = request.meets(spec.ttft_s, spec.tpot_s)
        windows.setdefault(int(request.arrival_s // WINDOW_S), []).append(met)
    bad = [
        i for i, met in windows.items() if mean(met) < RECOVERED and (i + 1) * WINDOW_S > since_s
    ]
    return (max(bad) + 1) * WINDOW_S - since_s if bad else 0.0


def overshoot(service: Service, chosen: Scenario) -> float:
    spec = service.spec
    arrived = service.gateway.requests
    needed = max(count for _, count in policies.oracle(spec, arrived, FULL).needed)
    most = max(c.held for c in service.fleet.census if c.at_s <= chosen.duration_s)
    return most - min(max(needed, spec.min_replicas), spec.max_replicas)


def blind_downs(service: Service, chosen: Scenario) -> int:
    blind = [f for f in chosen.faults if isinstance(f, Blackout | Frozen)]
    moves = changes(service.scaler.records, chosen.duration_s)
    return sum(
        by < 0 and any(f.from_s <= at_s < (f.to_s or at_s) for f in blind) for at_s, by in moves
    )


def figures_of(done: Run) -> Figures:
    [service], chosen = done.services, done.scenario
    summary = summarize(service, chosen.duration_s)
    return {
        "attainment": summary.attainment,
        "mean_replicas": summary.mean_replicas,
        "recovery_s": recovery_s(service, disturbed_s(chosen)),
        "overshoot": overshoot(service, chosen),
        "reversals": summary.reversals,
        "blind_downs": blind_downs(service, chosen),
    }


def table_of(name: str, rows: dict[str, Figures]) -> Table:
    table = Table(
        "rule", "attainment", "replicas", "recovery, s", "overshoot", "reversals", "blind downs",
        title=name,
    )  # fmt: skip
    for policy, row in rows.items():
        table.add_row(
            policy, f"{row['attainment']:.2%}", f"{row['mean_replicas']:.2f}",
            f"{row['recovery_s']:.0f}", f"{row['overshoot']:+.1f}", f"{row['reversals']:.1f}",
            f"{row['blind_downs']:.1f}",
        )  # fmt: skip
    return table


def main() -> int:
    parser = option_parser(__doc__, seeds=3, cache=Path("out/stress"))
    parser.add_argument("--rules", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--scenarios", nargs="*", default=list(STRESS))
    options = parser.parse_args()
    faults = []
    console = Console(file=sys.stdout, width=120)
    for name in options.scenarios:
        rows, loaded = {}, scenario.load(name)
        for policy in options.rules:
            runs = [
                figures(options.cache, loaded, policy, {}, seed, figures_of)
                for seed in range(options.seeds)
            ]
            rows[policy] = {figure: mean(one[figure] for one in runs) for figure in runs[0]}
        console.print(table_of(name, rows))
        ours = rows.get(OURS, {})
        if ours.get("reversals") and name not in FLASH:
            faults.append(f"{name}: ours reverses")
        if ours.get("blind_downs"):
            faults.append(f"{name}: ours steps down blind")
    for fault in faults:
        console.print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
