"""ServeGen client statistics (alibaba/ServeGen, Apache-2.0): rates and lengths per client, not requests.

`chunk-N-trace.csv`, without a header: window start in s, requests/s, coefficient of variation of the gaps,
then the fitted pattern and its parameters. `chunk-N-dataset.json`: distributions of input and output tokens
for every six hours, each the text of a Python dictionary {tokens: probability}. Clients without lengths are
skipped. The input is a folder or a .tar.gz of it.
"""

import ast
import csv
import io
import json
import re
import tarfile
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

from penstock.sim.traces.row import Row
from penstock.sim.workload.arrivals import times

WINDOW_S = 600.0
NAME = re.compile(r"chunk-(\d+)-(trace\.csv|dataset\.json)$")


class Lengths(NamedTuple):
    """Distribution of token counts: ascending values with cumulated probabilities."""

    tokens: tuple[int, ...]
    cumulated: tuple[float, ...]

    def draw(self, random: Random) -> int:
        index = bisect_right(self.cumulated, random.random() * self.cumulated[-1])
        return self.tokens[min(index, len(self.tokens) - 1)]


class Client(NamedTuple):
    """Statistics of a client: (start s, requests/s, cv of gaps) and (start s, input, output)."""

    windows: tuple[tuple[float, float, float], ...]
    lengths: tuple[tuple[float, Lengths, Lengths], ...]


def clients(path: Path) -> list[Client]:
    """Clients by number. Raises ValueError or KeyError for a file of another form."""
    parts: dict[int, dict[str, str]] = {}
    for name, text in _texts(path):
        if (found := NAME.search(name)) is not None:
            parts.setdefault(int(found[1]), {})[found[2]] = text
    read = [
        Client(_windows(part["trace.csv"]), _lengths(part["dataset.json"]))
        for _, part in sorted(parts.items())
        if len(part) == 2
    ]
    return [client for client in read if client.lengths]


def rows(
    all_clients: list[Client], from_s: float, duration_s: float, scale: float, random: Random
) -> Iterator[Row]:
    """Draw arrivals of every client at `scale` times its rate, unordered. The first window is at 0."""
    for client in all_clients:
        for start_s, rate, cv in client.windows:
            begin_s, end_s = max(start_s, from_s), min(start_s + WINDOW_S, from_s + duration_s)
            if begin_s >= end_s or rate <= 0:
                continue
            points = ((begin_s, rate * scale), (end_s, rate * scale))
            _, prompts, outputs = next(
                (c for c in reversed(client.lengths) if c[0] <= start_s), client.lengths[0]
            )
            for at_s in times(points, min(max(cv, 0.05), 30.0), random):
                yield Row(at_s, max(1, prompts.draw(random)), max(1, outputs.draw(random)))


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    if path.is_dir():
        for file in sorted(path.iterdir()):
            yield file.name, file.read_text()
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and (content := archive.extractfile(member)) is not None:
                yield member.name, content.read().decode()


def _windows(text: str) -> tuple[tuple[float, float, float], ...]:
    lines = csv.reader(io.StringIO(text))
    return tuple((float(start), float(rate), float(cv or 1)) for start, rate, cv, *_ in lines)


def _lengths(text: str) -> tuple[tuple[float, Lengths, Lengths], ...]:
    found = []
    for start, window in json.loads(text).items():
        prompts = _distribution(window["input_tokens"])
        outputs = _distribution(window["output_tokens"])
        if prompts and outputs:
            found.append((float(start), prompts, outputs))
    return tuple(sorted(found, key=lambda window: window[0]))


def _distribution(text: str) -> Lengths | None:
    """Parse one distribution; None for an empty window."""
    chances = ast.literal_eval(text) if text else {}
    if not chances:
        return None
    tokens = sorted(chances)
    return Lengths(
        tuple(int(token) for token in tokens), tuple(accumulate(chances[t] for t in tokens))
    )
