"""Runs a program with the packages of the checkout, as benchmarks/device.py finds them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FIND_PACKAGES = f"""
import sys
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from device import find_packages
find_packages()
import torch
"""


def run_to_end(code: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end. code: may use sys and torch without importing them."""
    return subprocess.run(
        [sys.executable, "-c", FIND_PACKAGES + code], env={**os.environ, **env},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def run_python(code: str, **env: str) -> str:
    """The output of a program, which has to end without an error."""
    result = run_to_end(code, **env)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout
