"""Measures the memory that code takes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def measured_bytes(code: str) -> int:
    """Bytes printed by `code` in a new process, as this one could reuse memory of earlier tests."""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return int(result.stdout)
