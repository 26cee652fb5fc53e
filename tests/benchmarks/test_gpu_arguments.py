"""Refusals of a run on a GPU, and its messages about missing packages."""

import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from benchmarks.gpu import packages, results, run
from benchmarks.gpu.steps import BY_LETTER, STEPS, chosen_steps


def run_steps_of(out: Path, only: str, minutes: float = 1.0) -> int:
    return run.run(out, minutes=minutes, only=only, seed=0, now=time.monotonic)


class Blocker:
    """Hides a module, as if it was not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == self._name:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return None


PACKAGES = sorted({name for step in STEPS for name in step.packages})


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_leaves_out_its_steps_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Blocker(name), *sys.meta_path])
    launched: list[str] = []

    def launch(letter: str, skip: int, seconds: float, kill_s: float, out: Path, seed: int) -> int:
        launched.append(letter)
        results.append(out, {"step": letter, "item": "one"})
        return 0

    monkeypatch.setattr(run, "launch_step", launch)
    lacking = [step.letter for step in STEPS if name in step.packages]
    others = [step.letter for step in STEPS if name not in step.packages]
    status = run_steps_of(tmp_path / "out", "")
    assert (status, launched) == ((0, ["m", *others]) if others else (2, []))
    output = capsys.readouterr().out
    for letter in lacking:
        assert f"step {letter} ({BY_LETTER[letter].name}) is left out: {name} missing." in output
    assert f"'{packages.requirement(name)}'" in output
    left_out = [r["step"] for r in results.read(tmp_path / "out") if "left_out" in r]
    assert left_out == (lacking if others else [])


def test_the_commands_ask_for_this_projects_versions() -> None:
    assert packages.requirement("prometheus_client").startswith("prometheus-client>=")
    assert packages.requirement("triton").startswith("triton>=")
    assert ";" not in packages.requirement("triton")
    text = packages.how_to_bring(["uvicorn"])
    assert "'uvicorn[standard]>=" in text
    assert f"--python-version {sys.version_info.major}.{sys.version_info.minor}" in text
    assert "PYTHONPATH=out/packages" in text


def test_an_old_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages.old_packages(["typer", "no_such_package"]) == {}
    monkeypatch.setattr(packages.metadata, "version", lambda name: "0.1")
    wanted = packages.requirement("typer")
    assert packages.old_packages(["typer"]) == {"typer": f"typer is 0.1, not {wanted}"}


# Arguments


@pytest.mark.parametrize("only", ["b,a", "b, a", " a b ", "a,,b,a"])
def test_letters_are_chosen_in_the_order_of_the_run(only: str) -> None:
    assert [step.letter for step in chosen_steps(only)] == ["a", "b"]


def test_an_unknown_letter_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_steps_of(tmp_path / "out", "a,x") == 2
    error = capsys.readouterr().err
    assert "--only has no step x; the steps are a, b, c, d, e, f, g" in error
    assert not (tmp_path / "out").exists()


def test_results_of_an_earlier_run_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results.append(tmp_path, {"step": "a", "item": "one"})
    assert run_steps_of(tmp_path, "a") == 2
    assert "has the results of an earlier run" in capsys.readouterr().err
    assert results.read(tmp_path) == [{"step": "a", "item": "one"}]


@pytest.mark.parametrize("minutes", [0.0, 0.01, -1.0, float("nan")])
def test_too_little_time_is_refused(tmp_path: Path, minutes: float) -> None:
    assert run_steps_of(tmp_path, "a", minutes=minutes) == 2


# Runs that cannot go on


def test_a_run_without_a_result_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "launch_step", lambda *_: 0)
    assert run_steps_of(tmp_path / "out", "a") == 2
    assert "nothing was checked or measured" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched: list[str] = []
    monkeypatch.setattr(run, "launch_step", lambda letter, *_: launched.append(letter) or 0)
    (tmp_path / "out" / "room").mkdir(parents=True)  # in the way, as root can write anywhere
    assert run_steps_of(tmp_path / "out", "a") == 2
    assert "out cannot be written: " in capsys.readouterr().err
    assert launched == []


def test_a_full_disk_ends_the_run_with_its_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(letter: str, skip: int, seconds: float, kill_s: float, out: Path, seed: int) -> int:
        if letter == "b":
            raise OSError(28, "No space left on device")
        results.append(out, {"step": letter, "item": "one"})
        return 0

    monkeypatch.setattr(run, "launch_step", launch)
    assert run_steps_of(tmp_path / "out", "a b c") == 1
    output = capsys.readouterr().out
    assert "the run has ended early: [Errno 28] No space left on device" in output
    assert "a: 1 items, 0 failed" in output


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"device": "cpu"}, "torch finds no GPU"),
        ({"device": "cuda", "gpu": "NVIDIA H200", "torch": "2.11.0", "cuda": "13.0", "triton": "3.6.0"},
         "NVIDIA H200, torch 2.11.0, cuda 13.0, triton 3.6.0"),
        ({"left_out": "no time was left"}, "the device is not known"),
    ],
)  # fmt: skip
def test_the_device_is_named_before_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    record: dict[str, str], text: str,
) -> None:  # fmt: skip
    def launch(letter: str, skip: int, seconds: float, kill_s: float, out: Path, seed: int) -> int:
        results.append(out, {"step": letter, **(record if letter == "m" else {"item": "one"})})
        return 0

    monkeypatch.setattr(run, "launch_step", launch)
    assert run_steps_of(tmp_path / "out", "a") == 0
    lines = capsys.readouterr().out.splitlines()
    named = next(number for number, line in enumerate(lines) if text in line)
    assert lines[named + 1].startswith("a kernels: 1 items")
