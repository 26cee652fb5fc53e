"""The start of an engine in a fresh process, and its memory: counted against used."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.gpu.context import Context, Item, Record

SHAPES = ("0.6b", "8b")
FOLDER = Path(__file__).resolve().parents[1]  # that of device.py
PROCESS = "benchmarks.gpu.startup.process"
# Finds the packages of the checkout as device.py does, and runs the start. It keeps the working directory,
# from which relative paths of PYTHONPATH count.
PROGRAM = f"""
import importlib, sys
sys.path.insert(0, {str(FOLDER)!r})
import device
device.find_packages()
importlib.import_module("{PROCESS}").main()
"""


def items(context: Context) -> Iterator[Item]:
    """A start for each shape."""
    for shape in SHAPES:
        yield Item(f"{shape}, start", partial(measure, shape, context))


def measure(shape: str, context: Context) -> Record:
    """Run PROCESS in a process of its own, and return its figures."""
    arguments = [shape, context.device, str(context.seed), repr(time.time())]
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True,
        timeout=max(30.0, context.time_left_s()), check=False,
    )  # fmt: skip
    lines = result.stdout.strip().splitlines()
    if result.returncode != 0 or not lines:
        return {"error": f"exit status {result.returncode}: {result.stderr[-2000:]}"}
    figures: Record = json.loads(lines[-1])
    return figures
