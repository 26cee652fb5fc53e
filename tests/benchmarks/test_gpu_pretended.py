"""The steps of benchmarks/device.py with a pretended CUDA device: the lines that only a device reaches."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Items of each step that are run: all of those that measure, and a few of those that check.
NUM_ITEMS = {"m": 1, "a": 5, "b": 4, "c": 9, "d": 7, "e": 4, "g": 1}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_step_fails_where_cuda_is_pretended(tmp_path: Path) -> None:
    """The first items of each step, however long they take; the program runs all when it is called."""
    for letter, num_items in NUM_ITEMS.items():
        command = [
            sys.executable, "-m", "tests.benchmarks.pretended_cuda", letter, "--out", str(tmp_path),
            "--items", str(num_items),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        text = (tmp_path / "results.jsonl").read_text()
        assert done.returncode == 0, done.stderr[-3000:] + text[-3000:]
    counts = Counter(json.loads(line)["step"] for line in text.splitlines())
    assert counts == NUM_ITEMS
