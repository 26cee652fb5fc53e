"""Prints two runs side by side. Imports no torch."""

import sys
from pathlib import Path
from typing import TextIO

from benchmarks.gpu import results
from benchmarks.gpu.context import Record


def print_comparison(old: Path, new: Path) -> int:
    """Print the numbers of the items that both runs have. Returns 2 if one of them has no results."""
    runs = [results.read(folder) for folder in (old, new)]
    for folder, records in zip((old, new), runs, strict=True):
        if not records:
            print(f"{folder} has no {results.FILE}", file=sys.stderr)
            return 2
    compare(runs[0], runs[1], sys.stdout)
    return 0


def compare(old: list[Record], new: list[Record], out: TextIO) -> None:
    """Print a line for each number of an item of both runs: old, new, and new / old."""
    before = {(r["step"], r["item"]): r for r in old if "item" in r}
    after = {(r["step"], r["item"]): r for r in new if "item" in r}
    for key, record in after.items():
        earlier = before.get(key, {})
        for name, value in record.items():
            was = earlier.get(name)
            if not _is_number(value) or not _is_number(was):
                continue
            ratio = f"{value / was:8.3f}" if was else ""
            print(f"{key[0]} {key[1]:48} {name:24} {was:12.5g} {value:12.5g} {ratio}", file=out)
    for title, only in (("only in the old run", before), ("only in the new run", after)):
        other = after if only is before else before
        if names := [" ".join(key) for key in only if key not in other]:
            print(f"{title}: {', '.join(names)}", file=out)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
