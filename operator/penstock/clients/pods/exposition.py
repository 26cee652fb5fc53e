"""Parser of Prometheus' text format, for the metric names that are wanted.

The client library's parser reads every label of every line, which is too slow for hundreds of engines.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*$")
# Quotes inside a label's value are escaped, so that this matches only the label `le`.
UPPER_BOUND = re.compile(r'(?:^|,)le="([^"]*)"')


Series = Mapping[str, list[tuple[str, float]]]


class Samples:
    """Samples by metric name: a list of (labels as text, value) for each."""

    def __init__(self, series: Series) -> None:
        self._found = series

    @classmethod
    def read(cls, text: str, wanted: Iterable[str]) -> "Samples":
        """Parse the samples of the wanted names. Raises ValueError for a line that is not valid."""
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
        """Sum over the series of a name; 0 without any."""
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
    """Return the value of a label; empty if there is none."""
    found = re.search(rf'(?:^|,){name}="([^"]*)"', labels)
    return found[1] if found else ""


def labels_text(labels: Mapping[str, str]) -> str:
    """Format labels as they stand between the braces of a sample."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
