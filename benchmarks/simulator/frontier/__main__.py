"""Tunes every rule on one or several scenarios and compares their GPU-hours at the same attainment.

    python -m benchmarks.simulator.frontier azure-110 --traces FOLDER --cache out/frontier

Finished runs are kept in the cache, so a stopped search can be resumed. A scenario is TRACE-SECONDS, with the
start-up time of a pod in seconds, or the name of a shipped one.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from benchmarks.simulator.frontier.grids import GRIDS
from benchmarks.simulator.frontier.scenarios import STARTUPS_S, TRACES, find_scenario
from benchmarks.simulator.frontier.search import OURS, FrontierSearch, Result
from benchmarks.simulator.frontier.tables import draw, table_of
from rich.console import Console

from penstock.core.admission.admission_spec import Policy

EVERY_SCENARIO = [f"{trace}-{startup_s:.0f}" for trace in TRACES for startup_s in STARTUPS_S]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    names = options.rules or list(GRIDS)
    console = Console(file=sys.stdout, width=150)
    panels = {}
    for name in options.scenarios or EVERY_SCENARIO:
        search = FrontierSearch(
            options.cache, find_scenario(name, options.traces), options.target, options.seeds
        )
        results: list[Result] = []
        for result in search.results(names, options.admission):
            results.append(result)
            console.print(table_of(name, results[-1:], None), style="dim")
        ours = next((r for r in results if (r.policy, r.admission) == (OURS, "deadline")), None)
        console.print(table_of(name, results, ours))
        panels[name] = results
    if options.plot:
        draw(panels, options.plot)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulator.frontier", description=__doc__
    )
    parser.add_argument("scenarios", nargs="*", help="all traces and start-ups by default")
    parser.add_argument("--rules", nargs="*", help="all by default")
    parser.add_argument("--traces", type=Path, default=Path("traces"), help="folder")
    parser.add_argument("--cache", type=Path, default=Path("out/frontier"), help="folder")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds in the report")
    parser.add_argument("--target", type=float, default=0.99, help="attainment")
    parser.add_argument(
        "--admission", nargs="*", choices=get_args(Policy), default=["deadline", "none"]
    )
    parser.add_argument("--plot", type=Path, help="file for a plot of attainment against GPU-hours")
    return parser


if __name__ == "__main__":
    main()
