"""Runs the steps one after another, each in a process of its own, within the time. Imports no torch."""

import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu import results
from benchmarks.gpu.bars import failures, summary
from benchmarks.gpu.child import DEVICE_IS_LOST
from benchmarks.gpu.context import Record
from benchmarks.gpu.packages import how_to_bring, is_there, old_packages
from benchmarks.gpu.process import run_within
from benchmarks.gpu.step_files import (
    TIMEOUT,
    end_of,
    item_path,
    log_path,
    shorten,
    text_of,
    trace_path,
)
from benchmarks.gpu.steps import MACHINE, Step, chosen_steps, seconds_of

SCRIPT = Path(__file__).resolve().parents[1] / "device.py"
SUMMARY_S = 3  # kept for the end
# After its time a step may end its item; then its process is killed. Less where the run itself ends.
GRACE_S = 15
ROOM_BYTES = 2**20  # more than the results and logs of a run, unless a step prints much
MAX_CRASHES = 5  # of a step, after which the rest of it is left out
REFUSED, INTERRUPTED = 2, 130  # exit statuses

# Runs a step: its letter, number of items to skip, its seconds, and the seconds after which it is killed.
# Returns the exit status, negative for a signal; None if it was killed after its time.
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
        return refuse(str(error))
    if (out / results.FILE).exists():
        return refuse(f"{out} has the results of an earlier run; name another folder")
    if not ends_s > now():
        return refuse(f"--minutes {minutes:g} is too short")
    lacking = {step.letter: [p for p in step.packages if not is_there(p)] for step in steps}
    able = [step for step in steps if not lacking[step.letter]]
    print_plan(able, minutes, ends_s - now(), out)
    report_packages(steps, lacking)
    for package in ("torch", "numpy"):
        if not is_there(package):
            return refuse(f"{package} is missing")
    if not able:
        return refuse("none of the steps can run on this machine")
    try:
        check_folder(out)
        for letter, missing in lacking.items():
            if missing:
                results.append(out, {"step": letter, "left_out": f"{', '.join(missing)} missing"})
    except OSError as error:
        return refuse(f"{out} cannot be written: {error}")

    def launch(letter: str, skip: int, seconds: float, kill_s: float) -> int | None:
        return launch_step(letter, skip, seconds, kill_s, out, seed)

    is_interrupted = has_failed = False
    try:
        run_steps([MACHINE, *able], out, ends_s, now, launch)
    except KeyboardInterrupt:
        say("interrupted")
        is_interrupted = True
    except OSError as error:  # as on a full disk
        say(f"the run has ended early: {error}")
        has_failed = True
    records = results.read(out)
    text = io.StringIO()
    status = summary(records, text)
    say(text.getvalue().rstrip("\n"))
    if not any("item" in r for r in records if r["step"] != MACHINE.letter):
        say("nothing was checked or measured")
        status = status or REFUSED
    say(f"results: {out / results.FILE}")
    return INTERRUPTED if is_interrupted else status or int(has_failed)


def check_folder(out: Path) -> None:
    """Raise OSError if the folder of the results has no room for what a run writes."""
    path = out / "room"
    with path.open("wb") as file:
        try:
            file.write(bytes(ROOM_BYTES))
            file.flush()
        finally:
            path.unlink()


def say(*lines: str) -> None:
    """Print lines at once. The run goes on if nobody reads them any more, as its results are in a file."""
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return REFUSED


def print_plan(steps: list[Step], minutes: float, seconds: float, out: Path) -> None:
    """Print what will run, and the least time that each step has."""
    every = [MACHINE, *steps]
    shares = ", ".join(f"{s.letter} {s.name} {seconds_of(s, every, seconds):.0f} s" for s in every)
    say(f"{minutes:g} minutes: {shares}; output of the steps: {out}/*.log")


def report_packages(steps: list[Step], lacking: dict[str, list[str]]) -> None:
    """Say which packages are missing or old, and how to bring them."""
    for step in steps:
        if missing := lacking[step.letter]:
            names = ", ".join(missing)
            text = f"step {step.letter} ({step.name}) is left out: {names} missing."
            say(text, how_to_bring(missing))
        elif old := old_packages(step.packages):
            text = f"step {step.letter} ({step.name}) may fail: {', '.join(old.values())}."
            say(text, how_to_bring(list(old)))


def run_steps(
    steps: list[Step], out: Path, ends_s: float, now: Callable[[], float], launch: Launch
) -> None:
    """Run steps in order, each for its share of the time until ends_s."""
    for index, step in enumerate(steps):
        started_s = now()
        if ends_s <= started_s:
            results.append(out, {"step": step.letter, "left_out": "no time was left"})
            continue
        step_ends_s = started_s + seconds_of(step, steps[index:], ends_s - started_s)
        run_step(step, out, step_ends_s, ends_s, now, launch)
        shorten(log_path(out, step.letter))
        own = [record for record in results.read(out) if record["step"] == step.letter]
        say(
            f"{step.letter} {step.name}: {num_items(out, step)} items, {len(failures(own))} failed, "
            f"{now() - started_s:.0f} s"
        )  # fmt: skip
        if step is MACHINE:
            say(describe_machine(own))


def describe_machine(records: list[Record]) -> str:
    """Name the device and the versions, for a user who would end a run on the wrong device."""
    facts = next((record for record in records if "device" in record), None)
    if facts is None:
        return "the device is not known, so that figures relative to it will be missing"
    if facts["device"] == "cpu":
        return (
            "torch finds no GPU: small shapes run under Triton's interpreter, which shows no speed"
        )
    versions = ", ".join(f"{name} {facts.get(name)}" for name in ("torch", "cuda", "triton"))
    return f"{facts.get('gpu')}, {versions}"


def run_step(
    step: Step, out: Path, step_ends_s: float, ends_s: float, now: Callable[[], float],
    launch: Launch,
) -> None:  # fmt: skip
    """Run a step. After a crash, it goes on with the item after the one that caused it."""
    for _ in range(MAX_CRASHES):
        seconds = step_ends_s - now()
        if seconds <= 0:
            return
        kill_s = min(seconds + GRACE_S, ends_s - now())
        status = launch(step.letter, num_items(out, step), seconds, kill_s)
        if status == 0:
            return
        if status == DEVICE_IS_LOST:
            continue  # the item has a record of its own
        item = text_of(item_path(out, step.letter))
        is_hung = status is None or text_of(trace_path(out, step.letter)).startswith(TIMEOUT)
        if is_hung and not item:
            text = "its time was over before an item had started"
            results.append(out, {"step": step.letter, "left_out": text})
            return
        why = f"no end after {kill_s:.0f} s" if is_hung else describe_exit(status)
        results.append(out, record_of_crash(step, out, item, why))
        if not item:
            return  # the step itself failed, outside of an item
    results.append(out, {"step": step.letter, "left_out": f"the rest, after {MAX_CRASHES} crashes"})


def describe_exit(status: int | None) -> str:
    """An exit status as text: a signal by its name."""
    if status is None or status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def record_of_crash(step: Step, out: Path, item: str, why: str) -> Record:
    """Record of an item in which a process ended: where it was, the end of its output, and why.

    item: empty if it was in none; then the record is the step's.
    """
    trace, log = text_of(trace_path(out, step.letter)), end_of(log_path(out, step.letter))
    output = f"; its last output: {log.splitlines()[-1]}" if log else ""
    parts = [trace, log, f"the process ended without a result: {why}{output}"]
    record = {"step": step.letter, "error": "\n".join(filter(None, parts))}
    return record | {"item": item} if item else record


def num_items(out: Path, step: Step) -> int:
    """Number of items that have a record."""
    return sum(r["step"] == step.letter and "item" in r for r in results.read(out))


def launch_step(
    letter: str, skip: int, seconds: float, kill_s: float, out: Path, seed: int
) -> int | None:
    """Run a step in a process. Returns its exit status, negative for a signal; None if it was killed."""
    command = [
        sys.executable, str(SCRIPT), "--step", letter, "--skip", str(skip), "--out", str(out),
        "--seed", str(seed), "--seconds", f"{seconds:.1f}", "--kill-seconds", f"{kill_s:.1f}",
    ]  # fmt: skip
    for path in (item_path(out, letter), trace_path(out, letter)):
        path.unlink(missing_ok=True)  # of a process before
    return run_within(command, kill_s, log_path(out, letter))
