"""Runs the steps one after another, each in a process of its own, within the time. Imports no torch."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu import results
from benchmarks.gpu.bars import summary
from benchmarks.gpu.child import DEVICE_IS_LOST
from benchmarks.gpu.packages import how_to_bring
from benchmarks.gpu.steps import MACHINE, Step, chosen_steps, seconds_of

SCRIPT = Path(__file__).resolve().parents[1] / "device.py"
SUMMARY_S = 3  # kept for the end
# After its time a step may end its item; then its process is killed. Less where the run itself ends.
GRACE_S = 15
MAX_CRASHES = 5  # of a step, after which the rest of it is left out

# Runs a step: its letter, number of items to skip, its seconds, and the seconds after which it is killed.
# Returns the exit status; None if it was killed.
Launch = Callable[[str, int, float, float], int | None]


def run(
    out: Path, *, minutes: float, only: str, seed: int, now: Callable[[], float]
) -> int:  # fmt: skip
    """Run the chosen steps and print a summary. Returns an exit status."""
    ends_s = now() + 60 * minutes - SUMMARY_S
    try:
        steps = chosen_steps(only)
        out.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if (out / results.FILE).exists():
        print(f"{out} has the results of an earlier run; name another folder", file=sys.stderr)
        return 2
    able = able_steps(steps)
    if not able or find_spec("torch") is None:
        print("none of the steps can run on this machine", file=sys.stderr)
        return 2

    def launch(letter: str, skip: int, seconds: float, kill_s: float) -> int | None:
        return launch_step(letter, skip, seconds, kill_s, out, seed)

    run_steps([MACHINE, *able], out, ends_s, now, launch)
    return summary(results.read(out), sys.stdout)


def able_steps(steps: list[Step]) -> list[Step]:
    """The steps whose packages are installed; says at once what the others lack, and how to bring it."""
    able = []
    for step in steps:
        missing = [name for name in step.packages if find_spec(name) is None]
        if missing:
            print(
                f"step {step.letter} ({step.name}) is left out: {', '.join(missing)} missing."
                f"{how_to_bring(missing)}",
                flush=True,
            )
        else:
            able.append(step)
    return able


def run_steps(
    steps: list[Step], out: Path, ends_s: float, now: Callable[[], float], launch: Launch
) -> None:
    """Run steps in order, each for its share of the time until ends_s."""
    for index, step in enumerate(steps):
        time_left_s = ends_s - now()
        if time_left_s <= 0:
            results.append(out, {"step": step.letter, "left_out": "no time was left"})
            continue
        step_ends_s = now() + seconds_of(step, steps[index:], time_left_s)
        run_step(step, out, step_ends_s, ends_s, now, launch)


def run_step(
    step: Step, out: Path, step_ends_s: float, ends_s: float, now: Callable[[], float],
    launch: Launch,
) -> None:  # fmt: skip
    """Run a step. After a crash or a hang, it goes on with the item after the one that caused it."""
    for _ in range(MAX_CRASHES):
        skip = num_items(out, step)
        seconds = step_ends_s - now()
        if seconds <= 0:
            return
        print(f"{step.letter} {step.name}: from item {skip}, {seconds:.0f} s", flush=True)
        kill_s = min(seconds + GRACE_S, ends_s - now())
        status = launch(step.letter, skip, seconds, kill_s)
        if status == 0:
            return
        if status != DEVICE_IS_LOST:  # then the item has a record of its own
            why = f"killed after {kill_s:.0f} s" if status is None else f"exit status {status}"
            record = {"step": step.letter, "item": f"item {num_items(out, step)}"}
            results.append(out, record | {"error": f"the process ended without a result: {why}"})
        if status is not None and status > 0 and status != DEVICE_IS_LOST:
            return  # the step itself failed, before its next item


def num_items(out: Path, step: Step) -> int:
    """Number of items that have a record."""
    return sum(r["step"] == step.letter and "item" in r for r in results.read(out))


def launch_step(
    letter: str, skip: int, seconds: float, kill_s: float, out: Path, seed: int
) -> int | None:
    """Run a step in a process. Returns its exit status; None if it was killed. Its output stays visible."""
    command = [
        sys.executable, str(SCRIPT), "--step", letter, "--skip", str(skip), "--out", str(out),
        "--seed", str(seed), "--seconds", f"{seconds:.1f}",
    ]  # fmt: skip
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(timeout=max(0.1, kill_s))
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_group(process)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a step's process and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
