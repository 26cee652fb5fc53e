"""Prints two runs side by side. Imports no torch."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from benchmarks.gpu import results
from benchmarks.gpu.bars import BARS, failures
from benchmarks.gpu.context import Record
from benchmarks.gpu.steps import BY_LETTER

MAX_WIDTH = 120  # characters of a line
ITEM_WIDTH, FIGURE_WIDTH = 44, 34  # with the numbers, a line has less

Key = tuple[str, str]  # letter of the step, name of the item


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
    """Print a line for each number of an item of both runs, then differences in what ran, and the bars."""
    before, after = items_of(old), items_of(new)
    print(row("", "item", "figure", "old", "new", "new / old"), file=out)
    for key in sorted(after, key=_order):
        earlier = dict(numbers(before.get(key, {})))
        for name, value in numbers(after[key]):
            if (was := earlier.get(name)) is not None:
                ratio = f"{value / was:.3f}" if was else ""
                print(row(*key, name, f"{was:.5g}", f"{value:.5g}", ratio), file=out)
    for title, keys in (
        ("only in the old run", before.keys() - after.keys()),
        ("only in the new run", after.keys() - before.keys()),
        ("failed in the old run", _failed(before)),
        ("failed in the new run", _failed(after)),
    ):
        for key in sorted(keys, key=_order):
            print(_cut(f"{title}: {' '.join(key)}", MAX_WIDTH).rstrip(), file=out)
    for bar in BARS:
        print(f"bar {bar}:", file=out)
        print(f"    old: {bar.verdict(old)}; new: {bar.verdict(new)}", file=out)


def items_of(records: list[Record]) -> dict[Key, Record]:
    return {(r["step"], r["item"]): r for r in records if "item" in r}


def numbers(record: Record, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Names and values of a record's numbers; those of dictionaries within it as `outer.inner`."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value


def row(letter: str, item: str, figure: str, old: str, new: str, ratio: str) -> str:
    """A line of the table."""
    return f"{letter:1} {_cut(item, ITEM_WIDTH)} {_cut(figure, FIGURE_WIDTH)} {old:>11} {new:>11} {ratio:>9}"


def _cut(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[: width - 3]}..."


def _order(key: Key) -> tuple[int, str]:
    letters = list(BY_LETTER)
    return (letters.index(key[0]) if key[0] in BY_LETTER else len(letters), key[1])


def _failed(items: dict[Key, Record]) -> set[Key]:
    return {key for key, record in items.items() if failures([record])}
