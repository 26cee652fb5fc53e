"""Azure LLM inference traces of 2023 and 2024: `TIMESTAMP,ContextTokens,GeneratedTokens`.

Published by AzurePublicDataset (Splitwise, ISCA 2024; DynamoLLM, HPCA 2025), CC-BY-4.0. Timestamps
have seven digits after the second in 2023, and a zone in 2024; Python reads six.
"""

import csv
from collections.abc import Iterable, Iterator
from datetime import datetime

from penstock.sim.traces.row import Row


def rows(lines: Iterable[str]) -> Iterator[Row]:
    """Rows of the CSV lines. Raises KeyError or ValueError for a line of another form."""
    for line in csv.DictReader(lines):
        prompt, output = int(line["ContextTokens"]), int(line["GeneratedTokens"])
        yield Row(_seconds(line["TIMESTAMP"]), max(1, prompt), max(1, output))


def _seconds(timestamp: str) -> float:
    moment, _, fraction = timestamp.partition("+")[0].partition(".")
    whole = datetime.fromisoformat(f"{moment.strip()}+00:00").timestamp()
    return whole + float(f"0.{fraction.rstrip('Z') or 0}")
