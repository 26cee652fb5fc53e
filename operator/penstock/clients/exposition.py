"""Prometheus text, as far as a scrape needs it: the lines that are wanted, as numbers.

The client library's parser reads every label of every line; a tick reads hundreds of engines.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*$")
# Quotes inside of a label's value are escaped, so that this begins at no other place.
UPPER_BOUND = re.compile(r'(?:^|,)le="([^"]*)"')


Series = Mapping[str, list[tuple[str, float]]]


class Samples:
    """Of each name its series: (labels as text, value)."""

    def __init__(self, series: Series) -> None:
        self._found = series

    @classmethod
    def read(cls, text: str, wanted: Iterable[str]) -> "Samples":
        """Of the wanted names. Raises ValueError when a line of them is none that Prometheus would
        read."""
        names = frozenset(wanted)
        prefixes = tuple(names)
        found: dict[str, list[tuple[str, float]]] = {}
        for line in text.splitlines():
            if not line.startswith(prefixes):
                continue
            sample = SAMPLE.match(line)
            if sample is None:
                raise ValueError(line[:80])
            if sample[1] in names:
                found.setdefault(sample[1], []).append((sample[2] or "", float(sample[3])))
        return cls(found)

    @property
    def series(self) -> Series:
        return self._found

    def sum(self, name: str) -> float:
        """Over its series; 0 of none."""
        return sum(value for _, value in self._found.get(name, ()))

    def buckets(self, name: str) -> tuple[tuple[float, float], ...]:
        """(upper bound, observations up to it), ascending, summed over the series of a histogram."""
        cumulative: dict[float, float] = defaultdict(float)
        for labels, value in self._found.get(f"{name}_bucket", ()):
            bound = UPPER_BOUND.search(labels)
            if bound is None:
                raise ValueError(f"{name} has a bucket without a bound")
            cumulative[float(bound[1])] += value
        return tuple(sorted(cumulative.items()))


def label(labels: str, name: str) -> str:
    """The value of a label; empty when there is none."""
    found = re.search(rf'(?:^|,){name}="([^"]*)"', labels)
    return found[1] if found else ""


def labels_text(labels: Mapping[str, str]) -> str:
    """As they stand between the braces of a line."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
