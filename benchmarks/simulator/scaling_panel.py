"""Compares scaling rules on a panel of random loads, each drawn from a seed.

    python -m benchmarks.simulator.scaling_panel --seeds 1000-1059
    python -m benchmarks.simulator.scaling_panel --seeds 1000-1059 --rules penstock:loss=1 --kinds daily code
    python -m benchmarks.simulator.scaling_panel --seeds 1000-1059 --no-speculation

Seeds 1000-1059 are for tuning; seeds 0-59 are for reported figures and nothing else. Rules are compared with
the smallest fixed number of replicas that attains the objectives, and with a lower bound on the GPU-hours of
every plan that attains them. --no-speculation adds plans that keep as many replicas as the past has shown to
be necessary, or a multiple, and bounds on the attainment of rules that never run more. Finished runs are kept
in a cache. A change of a rule or of a load is noticed; a change of the simulator is not, so use another
--cache then.
"""

import argparse
from collections.abc import Sequence
from resource import RUSAGE_CHILDREN, getrusage
from time import monotonic

from benchmarks.options import option_parser
from benchmarks.simulator.panel.load import draw_load
from benchmarks.simulator.panel.measure import BOUND, FIXED, NO_SPECULATION, results_of
from benchmarks.simulator.panel.table import (
    Row,
    class_table,
    fixed_of_bound,
    load_table,
    plan_table,
)
from benchmarks.simulator.run_cache import Result
from rich.console import Console

from penstock.clients.machine.caches import cache_root

RULES = ("penstock", "keda-queue-guard", "dynamo")
# The bars: loads that attain, and GPU-hours over those of the best fixed number and of the bound.
BARS = "bars: attain 55 of 60, of fixed 0.950, worst 1.15, of bound 1.20"


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    loads = {seed: draw_load(seed) for part in options.seeds for seed in _seeds(part)}
    kept = [
        seed
        for seed, load in loads.items()
        if not options.kinds or {load.kind, load.lengths} & set(options.kinds)
    ]
    console = Console(width=320 if options.no_speculation else 200)
    begin_s = monotonic()
    found: dict[int, dict[str, Result]] = {seed: {} for seed in kept}
    wanted = [FIXED, BOUND, *options.rules]
    if options.no_speculation:
        wanted.append(NO_SPECULATION)
    for job, result in results_of(kept, wanted, options.cache, options.jobs):
        found[job.seed][job.what] = result
        if options.progress:
            console.print(f"{monotonic() - begin_s:.0f} s: {job.seed} {job.what} {result}")
    rows = [
        Row(
            loads[seed],
            results[FIXED],
            results[BOUND]["gpu_hours"],
            {rule: results[rule] for rule in options.rules} | results.get(NO_SPECULATION, {}),
        )
        for seed, results in found.items()
        if results[FIXED]
    ]
    _print_tables(console, rows, options)
    unattainable = [seed for seed in kept if not found[seed][FIXED]]
    console.print(f"{BARS}; unattainable with any fixed number: {unattainable or 'none'}")
    used = getrusage(RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    console.print(
        f"{monotonic() - begin_s:.0f} s, with {cpu_s:.0f} s of CPU for what was not cached"
    )


def _print_tables(console: Console, rows: Sequence[Row], options: argparse.Namespace) -> None:
    compared = list(rows[0].rules) if rows else options.rules
    console.print(load_table(rows, compared))
    if options.rules:
        console.print(class_table(rows, options.rules))
    if options.no_speculation:
        console.print(plan_table(rows, compared[len(options.rules) :]))
    console.print(
        f"The best fixed numbers take {fixed_of_bound(rows):.2f} times the bound on average."
    )


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _parser() -> argparse.ArgumentParser:
    parser = option_parser(__doc__, cache=cache_root() / "scaling-panel", jobs=2)
    parser.add_argument("--seeds", nargs="+", default=["1000-1059"], help="FIRST-LAST or a number")
    parser.add_argument("--rules", nargs="*", default=RULES, help="NAME or NAME:KNOB=VALUE,...")
    parser.add_argument("--no-speculation", action="store_true", help="add plans from the past")
    parser.add_argument("--kinds", nargs="*", help="kinds of arrivals or lengths; all by default")
    parser.add_argument("--progress", action="store_true", help="print each result as it is found")
    return parser


if __name__ == "__main__":
    main()
