"""BurstGPT traces: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`, CC-BY-4.0.

Timestamps are seconds. A row without response tokens is a failed request and is skipped.
"""

import csv
from collections.abc import Iterable, Iterator

from penstock.sim.traces.row import Row


def rows(lines: Iterable[str]) -> Iterator[Row]:
    """Rows of the CSV lines. Raises KeyError or ValueError for a line of another form."""
    for line in csv.DictReader(lines):
        prompt, output = int(line["Request tokens"]), int(line["Response tokens"])
        if output:
            yield Row(float(line["Timestamp"]), max(1, prompt), output)
