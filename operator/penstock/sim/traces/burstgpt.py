"""BurstGPT: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, CC-BY-4.0.

Timestamps are seconds. A response of no tokens is a request that failed there; it is left out.
"""

import csv
from collections.abc import Iterable, Iterator

from penstock.sim.traces.row import Row


def rows(lines: Iterable[str]) -> Iterator[Row]:
    """Raises KeyError or ValueError where a line is not of this form."""
    for line in csv.DictReader(lines):
        prompt, output = int(line["Request tokens"]), int(line["Response tokens"])
        if output:
            yield Row(float(line["Timestamp"]), max(1, prompt), output)
