"""Runs the items of one step, in a process of its own."""

import importlib
import math
import os
import sys
import time
import traceback
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.gpu import results
from benchmarks.gpu.context import Context, Item, Record
from benchmarks.gpu.steps import BY_LETTER

DEVICE_IS_LOST = 3  # exit status: the process can no longer use the device


def run_items(letter: str, out: Path, seed: int, skip: int, seconds: float) -> int:
    """Run the items of a step but the first `skip`, and append a record of each. Returns an exit status."""
    started_s = time.monotonic()
    device = choose_device()
    step = BY_LETTER[letter]
    machine = next((r for r in results.read(out) if r.get("item") == "machine"), {})
    context = Context(device, seed, started_s + seconds, machine)
    items = importlib.import_module(step.module).items(context)
    for record in records_of(letter, items, context, skip):
        results.append(out, record)
        if "error" in record and not is_usable(device):
            return DEVICE_IS_LOST
    return 0


def choose_device() -> str:
    """cuda if there is a GPU; otherwise cpu, and Triton's interpreter is chosen before Triton's import."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    os.environ["TRITON_INTERPRET"] = "1"
    return "cpu"


def records_of(letter: str, items: Iterable[Item], context: Context, skip: int) -> Iterable[Record]:
    """Run items and yield a record of each; the last one says how many were left out for lack of time."""
    left_out = []
    for item in islice(items, skip, None):
        if context.time_left_s() <= 0:
            left_out.append(item.name)
            continue
        started_s = context.now()
        try:
            figures = item.run()
        except Exception:  # noqa: BLE001 - the other items still count
            figures = {"error": traceback.format_exc(limit=-4)[-2000:]}
        seconds = round(context.now() - started_s, 3)
        yield {"step": letter, "item": item.name, "seconds": seconds, **finite(figures)}
    if left_out:
        yield {"step": letter, "left_out": len(left_out), "first": left_out[0]}


def finite(value: Any) -> Any:
    """The value with text in place of infinities and NaN, which JSON has not."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def is_usable(device: str) -> bool:
    """Whether the device still works for this process; an illegal access ends its context."""
    if device == "cpu":
        return True
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"the device is lost to this process: {error}", file=sys.stderr)
        return False
    return True
