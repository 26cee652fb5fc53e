"""Measures what each part of the scaling rule by objectives is worth, over a panel of random loads.

    python -m benchmarks.simulator.scaling_ablation --seeds 1000-1059

Each part is removed alone, and each is added alone to the base: the forecast with the scale-down delay only.
A part is removed by another constant or function in its module. For each rule it prints the loads that
attain their objectives, the points that are short on average, the GPU-hours over those of the best fixed
number, and the paired difference of both from the whole rule (or from the base) with a 95 % interval over the
loads. Results are kept in a cache, in a folder of their own for each rule.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from math import inf, sqrt
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.options import option_parser
from benchmarks.simulator.panel.load import draw_load
from benchmarks.simulator.panel.measure import BOUND, FIXED, Job
from benchmarks.simulator.panel.table import Row
from rich.console import Console
from rich.table import Table

from penstock.clients.machine.caches import cache_root

OURS = "penstock"
WHOLE, BASE = "the whole rule", "the base"
LAW = "penstock.core.scaling.by_objectives"


def _nothing_stands(_backlog: object, _span_s: float) -> None:
    """In place of `Backlog.standing`: no backlog stands."""


def _no_deviation(_share: Callable[[int], float], _loss: float) -> float:
    """In place of the deviation that is added to the forecast."""
    return 0.0


def _first_dispersion(_arrivals: object, _elapsed_s: float) -> float:
    """In place of the measured dispersion: the prior's."""
    return float(import_module(f"{LAW}.arrivals").PRIOR_DISPERSION)


# Part -> module, attribute (of a class, if it has a dot), and what removes it.
PARTS: Mapping[str, tuple[str, str, Any]] = {
    "margin": (f"{LAW}.forecast", "_crossing", _no_deviation),
    "more loss while few are late": (f"{LAW}.outcomes", "MOST_LOSS", 1.0),
    "margin of a load that grows": (f"{LAW}.need", "BEYOND", 1.0),
    "backlog": (f"{LAW}.backlog", "Backlog.standing", _nothing_stands),
    "end of the window at a change": (f"{LAW}.arrivals", "CHANGE", inf),
    "measured dispersion": (f"{LAW}.arrivals", "Arrivals._dispersion", _first_dispersion),
    "scale-up delay": (f"{LAW}.steps", "SCALE_UP_DELAY", 0.0),
    "spare": (f"{LAW}.steps", "SPARE", 0.0),
    "growth kept": (f"{LAW}.steps", "SCALE_UP_HOLD_S", 0.0),
}


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    rules: dict[str, tuple[str, ...]] = {WHOLE: ()}
    rules |= {f"without {part}": (part,) for part in PARTS}
    rules[BASE] = tuple(PARTS)
    rules |= {f"base and {part}": tuple(each for each in PARTS if each != part) for part in PARTS}
    rows = {
        name: _rows(seeds, removed, options.cache, options.jobs) for name, removed in rules.items()
    }
    table = Table("rule", "attain", "points short", "difference", "of fixed", "difference")
    for name, found in rows.items():
        than = rows[BASE if name.startswith("base and") else WHOLE]
        table.add_row(
            name,
            f"{sum(row.attains(OURS) for row in found)} of {len(found)}",
            f"{mean(map(_short, found)):.2f}",
            _difference(_short, found, than),
            f"{mean(map(_of_fixed, found)):.3f}",
            _difference(_of_fixed, found, than),
        )
    Console(width=160).print(table)


def _rows(seeds: Sequence[int], removed: Sequence[str], folder: Path, processes: int) -> list[Row]:
    """Results of the rule without some parts, on loads that some fixed number attains."""
    spawn = get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, _remove, (removed,)) as pool:
        rows = list(pool.map(_row, seeds, [removed] * len(seeds), [folder] * len(seeds)))
    return [row for row in rows if row is not None]


def _remove(removed: Sequence[str]) -> None:
    """Remove parts of the rule in this process."""
    for part in removed:
        module, name, value = PARTS[part]
        owner: Any = import_module(module)
        *classes, attribute = name.split(".")
        for each in classes:
            owner = getattr(owner, each)
        assert hasattr(owner, attribute), f"{module} has no {name}"
        setattr(owner, attribute, value)


def _row(seed: int, removed: Sequence[str], folder: Path) -> Row | None:
    fixed = Job(seed, FIXED).result(folder)
    if not fixed:
        return None
    name = "-".join(sorted(part.replace(" ", "_") for part in removed)) or "whole"
    found = Job(seed, OURS).result(folder / "ablation" / name)
    bound = Job(seed, BOUND).result(folder)["gpu_hours"]
    return Row(draw_load(seed), fixed, bound, {OURS: found})


def _short(row: Row) -> float:
    """Percentage points by which the attainment is below the objective."""
    return 100 * max(0.0, row.load.service.attainment - float(row.rules[OURS]["attainment"]))


def _of_fixed(row: Row) -> float:
    return row.against_fixed(OURS)


def _difference(figure: Callable[[Row], float], found: list[Row], than: list[Row]) -> str:
    """Mean of the paired differences, with a 95 % interval."""
    if found is than:
        return ""
    differences = [figure(a) - figure(b) for a, b in zip(found, than, strict=True)]
    half = 1.96 * stdev(differences) / sqrt(len(differences))
    return f"{mean(differences):+.3f} ± {half:.3f}"


def _parser() -> argparse.ArgumentParser:
    folder = cache_root() / "scaling-panel"
    return option_parser(__doc__, seeds="1000-1059", cache=folder, jobs=2)


if __name__ == "__main__":
    main()
