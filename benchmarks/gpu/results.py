"""The results of a run: a file of JSON lines. Imports no torch."""

import json
import os
from pathlib import Path

from benchmarks.gpu.context import Record

FILE = "results.jsonl"


def append(folder: Path, record: Record) -> None:
    """Append a record, and wait until it is on the disk: the run may be cut at any time."""
    line = json.dumps(record, allow_nan=False, default=str) + "\n"
    with (folder / FILE).open("a") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path) -> list[Record]:
    """All records, without a last line that was cut. Empty if there is no file."""
    try:
        lines = (folder / FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records
