"""The draw by kernels, on a CPU. The tests are beside those of the kernels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RACE_TESTS = Path(__file__).parents[1] / "engine_model" / "kernels" / "test_race.py"


@pytest.mark.timeout(300)
def test_the_race_draws_as_it_should_under_the_interpreter() -> None:
    """In a process of its own: Triton decides at its import whether it interprets."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(RACE_TESTS)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    assert " passed" in result.stdout
