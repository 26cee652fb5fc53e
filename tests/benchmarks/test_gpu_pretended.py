"""The steps of benchmarks/device.py with a pretended CUDA device: the lines that only a device reaches."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_step_fails_where_cuda_is_pretended(tmp_path: Path) -> None:
    """The step `start` fails by its exit status, the items of the others by their records.

    Items that do not begin within some seconds are left out; the program runs all when it is called.
    """
    for letter in "mabcdeg":
        command = [
            sys.executable, "-m", "tests.benchmarks.pretended_cuda", letter, "--out", str(tmp_path),
            "--seconds", "8",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    records = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {record["step"] for record in records} == set("mabcde")
    assert [record for record in records if "error" in record or record.get("ok") is False] == []
