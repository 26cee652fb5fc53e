"""Runs the items of one step, in a process of its own."""

import faulthandler
import importlib
import math
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.gpu import results
from benchmarks.gpu.context import Context, Item, LeftOut, Record
from benchmarks.gpu.step_files import item_path, trace_path
from benchmarks.gpu.steps import BY_LETTER

DEVICE_IS_LOST = 3  # exit status: the process can no longer use the device
TRACE_S = 2.0  # from the trace of a process that hangs until it is killed
MAX_TEXT = 4000  # characters of a text in a record


def run_items(
    letter: str, out: Path, seed: int, skip: int, seconds: float, kill_s: float
) -> int:  # fmt: skip
    """Run the items of a step but the first `skip`, and append a record of each. Returns an exit status.

    kill_s: seconds after which the process is killed; before that it writes where it is, and ends.
    """
    started_s = time.monotonic()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core has all memory, and takes minutes
    with trace_path(out, letter).open("w") as trace:
        faulthandler.enable(trace)
        faulthandler.dump_traceback_later(max(1.0, kill_s - TRACE_S), exit=True, file=trace)
        try:
            return _run_items(letter, out, seed, skip, started_s + seconds)
        finally:
            faulthandler.cancel_dump_traceback_later()
            faulthandler.disable()


def _run_items(letter: str, out: Path, seed: int, skip: int, ends_s: float) -> int:
    device = choose_device()
    step = BY_LETTER[letter]
    context = Context(device, seed, ends_s, machine_figures(out))
    items = importlib.import_module(step.module).items(context)
    running = item_path(out, letter)
    for record in records_of(letter, items, context, skip, running.write_text):
        results.append(out, record)
        running.unlink(missing_ok=True)
        if "error" in record and not is_usable(device):
            return DEVICE_IS_LOST
    return 0


def machine_figures(out: Path) -> Record:
    """The record of the step `machine` of a run; empty if there is none."""
    return next((r for r in results.read(out) if r.get("item") == "machine"), {})


def choose_device() -> str:
    """cuda if there is a GPU; otherwise cpu, and Triton's interpreter is chosen before Triton's import."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    os.environ["TRITON_INTERPRET"] = "1"
    return "cpu"


def records_of(
    letter: str, items: Iterable[Item], context: Context, skip: int,
    on_start: Callable[[str], object] = lambda name: None,
) -> Iterable[Record]:  # fmt: skip
    """Run items and yield a record of each; the last one says how many were left out for lack of time.

    on_start: gets the name of each item before it is run.
    """
    left_out = []
    for item in islice(items, skip, None):
        if context.time_left_s() <= 0:
            left_out.append(item.name)
            continue
        started_s = context.now()
        on_start(item.name)
        try:
            figures = finite(item.run())
        except LeftOut as reason:
            figures = {"left_out": str(reason)}
        except Exception as error:  # noqa: BLE001 - the other items still count
            trace = traceback.format_exc(limit=-4)[-2000:]
            figures = {"error": trace, "reason": reason_of(error)}
        seconds = round(context.now() - started_s, 3)
        yield {"step": letter, "item": item.name, "seconds": seconds, **figures}
    if left_out:
        text = f"{len(left_out)} items for lack of time, the first: {left_out[0]}"
        yield {"step": letter, "left_out": text}


def reason_of(error: Exception) -> str:
    """The kind of an exception, and the first line of its message that is not empty."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def finite(value: Any) -> Any:
    """The value as JSON has it: infinities and NaN as text, numbers of numpy and torch as Python's."""
    if isinstance(value, dict):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    if isinstance(value, str):
        return value[-MAX_TEXT:]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def is_usable(device: str) -> bool:
    """Whether the device still works for this process; an illegal access ends its context."""
    if device == "cpu":
        return True
    import torch

    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the failed item had
    except RuntimeError as error:
        print(f"the device is lost to this process: {error}", file=sys.stderr)
        return False
    return True
