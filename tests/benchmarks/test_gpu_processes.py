"""Processes of the steps of checks on a GPU: they crash, hang, and end with the run."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.gpu import results, run
from benchmarks.gpu.process import run_within

ROOT = Path(__file__).resolve().parents[2]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.mark.parametrize(
    ("script", "limit_s", "status"),
    [("exit 7", 30, 7), ("kill -SEGV $$", 30, -signal.SIGSEGV), ("sleep 60", 0.2, None)],
)
def test_a_command_ends_with_all_that_it_has_started(
    tmp_path: Path, script: str, limit_s: float, status: int | None
) -> None:
    child_file = tmp_path / "pid"
    command = shell(f"sleep 60 & echo $! > {child_file}; echo output; {script}")
    assert run_within(command, limit_s, tmp_path / "log") == status
    wait_for(lambda: not is_running(int(child_file.read_text())))
    assert (tmp_path / "log").read_text() == "output\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_the_run_itself(tmp_path: Path, number: signal.Signals) -> None:
    child_file, log = tmp_path / "pid", tmp_path / "log"
    ignore, move = "trap '' TERM INT", f"mv {child_file}.new {child_file}"
    script = f"{ignore}; sleep 60 & echo $! > {child_file}.new; {move}; wait"
    code = (
        "from pathlib import Path; from benchmarks.gpu.process import run_within; "
        f"run_within({shell(script)!r}, 60, Path({str(log)!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_for(child_file.exists)
        parent.send_signal(number)
        parent.wait(10)
        wait_for(lambda: not is_running(int(child_file.read_text())))
    finally:
        parent.kill()
        parent.wait()


FAKE_SCRIPT = """
import argparse, os, sys
from pathlib import Path
sys.path[:0] = [{root!r}, {folder!r}]
from benchmarks.gpu import child, steps
child.choose_device = lambda: "cpu"
for letter in "mabc":
    child.BY_LETTER[letter] = steps.Step(letter, letter, "fake_" + letter, 1)
parser = argparse.ArgumentParser()
for name in ("step", "out"):
    parser.add_argument("--" + name)
for name in ("skip", "seed"):
    parser.add_argument("--" + name, type=int)
for name in ("seconds", "kill-seconds"):
    parser.add_argument("--" + name, type=float)
a = parser.parse_args()
os._exit(child.run_items(a.step, Path(a.out), a.seed, a.skip, a.seconds, a.kill_seconds))
"""
FAKE_STEPS = {
    "m": "ITEMS = [('machine', lambda: {'copy_bytes_per_s': 1.0})]",
    "a": """
def crash():
    print("before the crash", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
def fail(): raise ValueError("a fault")
ITEMS = [('good', dict), ('crash', crash), ('fault', fail), ('last', lambda: {'ok': True, 'x': 2.0})]
""",
    "b": """
def stuck(): time.sleep(60)
ITEMS = [('good', dict), ('stuck', stuck), ('never', dict)]
""",
    "c": "import no_such_module",
}


@pytest.fixture
def fake_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results, of a run whose steps crash, hang and fail."""
    head = "import os, signal, time\nfrom benchmarks.gpu.context import Item\n"
    tail = "\ndef items(context): return [Item(*each) for each in ITEMS]\n"
    for letter, text in FAKE_STEPS.items():
        (tmp_path / f"fake_{letter}.py").write_text(head + text + tail)
    script = tmp_path / "script.py"
    script.write_text(FAKE_SCRIPT.format(root=str(ROOT), folder=str(tmp_path)))
    monkeypatch.setattr(run, "SCRIPT", script)
    monkeypatch.setattr(run, "is_there", lambda module: True)
    monkeypatch.setattr(run, "old_packages", lambda modules: {})
    return tmp_path / "out"


def run_steps_of(out: Path, only: str, minutes: float = 1.0) -> int:
    return run.run(out, minutes=minutes, only=only, seed=0, now=time.monotonic)


def test_a_run_with_a_crash_a_fault_and_a_broken_step(
    fake_steps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_steps_of(fake_steps, "a, c") == 1
    records = results.read(fake_steps)
    assert [(r["step"], r.get("item"), r.get("ok")) for r in records] == [
        ("m", "machine", None), ("a", "good", None), ("a", "crash", None), ("a", "fault", None),
        ("a", "last", True), ("c", None, None),
    ]  # fmt: skip
    crash = records[2]["error"]
    assert "Segmentation fault" in crash
    assert "in crash" in crash  # where it was
    assert crash.endswith("signal SIGSEGV; its last output: before the crash")
    assert "ValueError: a fault" in records[3]["error"]
    assert "No module named 'no_such_module'" in records[5]["error"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1 minutes: m machine ")
    assert lines[-1] == f"results: {fake_steps / 'results.jsonl'}"
    assert "FAILED a fault: ValueError: a fault" in lines
    assert "before the crash" not in lines  # the output of a step is in its log
    assert (fake_steps / "a.log").read_text().startswith("before the crash")


def test_a_step_that_hangs_is_killed_within_the_minutes(fake_steps: Path) -> None:
    started_s = time.monotonic()
    assert run_steps_of(fake_steps, "b", minutes=0.1) == 1
    assert time.monotonic() - started_s < 6.0 + 1.0
    (stuck,) = (r for r in results.read(fake_steps) if r.get("item") == "stuck")
    assert "in stuck" in stuck["error"]
    assert "no end after" in stuck["error"]


def test_an_interrupted_run_prints_its_summary(
    fake_steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(letter: str, *_: object) -> int:
        results.append(fake_steps, {"step": letter, "item": "machine"})
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "launch_step", interrupt)
    assert run_steps_of(fake_steps, "a") == 130
    lines = capsys.readouterr().out.splitlines()
    assert "m: 1 items, 0 failed" in lines
    assert lines[-1].startswith("results: ")


def test_a_run_goes_on_if_nobody_reads_its_output(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from benchmarks.gpu import results, run; "
        f"out = Path({str(tmp_path / 'out')!r}); "
        "run.launch_step = lambda letter, *_: results.append(out, {'step': letter, 'item': 'x'}) or 0; "
        "sys.exit(run.run(out, minutes=1, only='a c', seed=0, now=time.monotonic))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert [record["step"] for record in results.read(tmp_path / "out")] == ["m", "a", "c"]
