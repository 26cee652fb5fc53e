"""The results of a run: a file of JSON lines. Imports no torch."""

import json
import os
from pathlib import Path

from benchmarks.gpu.context import Record

FILE = "results.jsonl"


def append(folder: Path, record: Record) -> None:
    """Append a record, and wait until it is on the disk: the run may be cut at any time."""
    line = json.dumps(record, allow_nan=False, default=str) + "\n"
    path = folder / FILE
    start = "\n" if _ends_within_a_line(path) else ""  # left by a process that was killed
    with path.open("a") as file:
        file.write(start + line)
        file.flush()
        os.fsync(file.fileno())


def _ends_within_a_line(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def read(folder: Path) -> list[Record]:
    """All records, without lines that were cut. Empty if there is no file."""
    try:
        lines = (folder / FILE).read_text(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    records = []
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and "step" in record:
            records.append(record)
    return records
