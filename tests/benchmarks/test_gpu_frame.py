"""The time of the steps of checks on a GPU, their crashes, and the records of their items."""

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.gpu import child, results, run
from benchmarks.gpu.context import Context, Item, LeftOut, Record
from benchmarks.gpu.steps import Step

A, B, C = (Step(letter, letter * 3, f"fake_{letter}", weight) for letter, weight in
           (("a", 1), ("b", 2), ("c", 1)))  # fmt: skip


class Clock:
    """A clock that a fake launch moves."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


class Launches:
    """Launches that take some seconds, and return the next status."""

    def __init__(
        self, clock: Clock, seconds: float, statuses: Sequence[int | None] = (),
        running: Path | None = None,
    ) -> None:  # fmt: skip
        """running: file that gets the name of an item which is run when the launch ends."""
        self._clock, self._seconds, self._statuses = clock, seconds, list(statuses)
        self._running = running
        self.calls: list[tuple[str, int, float]] = []

    def __call__(self, letter: str, skip: int, seconds: float, kill_s: float) -> int | None:
        self.calls.append((letter, skip, round(seconds, 6)))
        self._clock.s += min(self._seconds, kill_s)
        if self._running is not None:
            self._running.write_text(f"number {skip}")
        if self._seconds > kill_s:
            return None
        return self._statuses.pop(0) if self._statuses else 0


# The time of the steps


def test_the_time_of_a_fast_step_is_shared_by_the_others(tmp_path: Path) -> None:
    clock = Clock()
    launches = Launches(clock, 4)
    run.run_steps([A, B, C], tmp_path, clock.s + 40, clock, launches)
    # 40 s by 1/4, then 36 s by 2/3, then 32 s.
    assert launches.calls == [("a", 0, 10), ("b", 0, 24), ("c", 0, 32)]


def test_no_step_starts_without_time_and_none_outlives_the_run(tmp_path: Path) -> None:
    clock = Clock()
    launches = Launches(clock, 1000)
    run.run_steps([A, B, C], tmp_path, clock.s + 40, clock, launches)
    # a: 10 s and 15 s of grace; b: two thirds of 15 s, and the rest as grace.
    assert launches.calls == [("a", 0, 10), ("b", 0, 10)]
    assert clock.s == 140
    assert results.read(tmp_path)[-1] == {"step": "c", "left_out": "no time was left"}


# Crashes


@pytest.mark.parametrize(
    "status", [-signal.SIGSEGV, -signal.SIGKILL, child.DEVICE_IS_LOST, 1, None]
)
def test_a_step_that_crashes_at_each_item_ends(tmp_path: Path, status: int | None) -> None:
    clock = Clock()
    launches = Launches(clock, 1, [status] * 5, tmp_path / "a.item")
    run.run_steps([A, B], tmp_path, clock.s + 600, clock, launches)
    assert [letter for letter, _, _ in launches.calls] == ["a"] * 5 + ["b"]
    records = results.read(tmp_path)
    assert records[-1]["left_out"] == "the rest, after 5 crashes"
    names = [] if status == child.DEVICE_IS_LOST else [f"number {n}" for n in range(5)]
    assert [record["item"] for record in records[:-1]] == names


def test_a_signal_costs_one_item_and_is_named(tmp_path: Path) -> None:
    clock = Clock()
    launches = Launches(clock, 1, [-signal.SIGSEGV, 0], tmp_path / "a.item")
    results.append(tmp_path, {"step": "a", "item": "first"})
    run.run_step(A, tmp_path, clock.s + 60, clock.s + 90, clock, launches)
    assert [skip for _, skip, _ in launches.calls] == [1, 2]
    record = results.read(tmp_path)[-1]
    assert record["item"] == "number 1"
    assert record["error"].endswith("the process ended without a result: signal SIGSEGV")


@pytest.mark.parametrize(("status", "name"), [(1, "exit status 1"), (-6, "signal SIGABRT")])
def test_an_end_outside_of_an_item_ends_the_step(tmp_path: Path, status: int, name: str) -> None:
    clock = Clock()
    launches = Launches(clock, 1, [status, 0])
    (tmp_path / "a.log").write_text("Traceback\nImportError: no kernels")
    run.run_step(A, tmp_path, clock.s + 60, clock.s + 90, clock, launches)
    assert len(launches.calls) == 1
    (record,) = results.read(tmp_path)
    assert "item" not in record
    assert record["error"].startswith("Traceback")
    assert record["error"].endswith(f"{name}; its last output: ImportError: no kernels")


def test_imports_that_take_all_time_are_no_failure(tmp_path: Path) -> None:
    clock = Clock()
    launches = Launches(clock, 1000)
    run.run_step(A, tmp_path, clock.s + 60, clock.s + 90, clock, launches)
    assert len(launches.calls) == 1
    (record,) = results.read(tmp_path)
    assert record == {"step": "a", "left_out": "its time was over before an item had started"}


def test_a_lost_device_has_no_second_record(tmp_path: Path) -> None:
    clock = Clock()
    launches = Launches(clock, 1, [child.DEVICE_IS_LOST, 0])
    run.run_step(A, tmp_path, clock.s + 60, clock.s + 90, clock, launches)
    assert len(launches.calls) == 2
    assert results.read(tmp_path) == []


# Items


def run_records(items: Sequence[Item], clock: Clock, ends_s: float, skip: int = 0) -> list[Record]:
    context = Context("cpu", 0, ends_s, now=clock)
    return list(child.records_of("a", items, context, skip))


def test_items_get_a_record_each_and_stop_with_the_time() -> None:
    clock = Clock()

    def work() -> Record:
        clock.s += 6
        return {"x": 1}

    def leave_out() -> Record:
        raise LeftOut("too large")

    items = [Item("skipped", work), Item("large", leave_out),
             *(Item(name, work) for name in ("one", "two", "three", "four"))]  # fmt: skip
    assert run_records(items, clock, clock.s + 10, skip=1) == [
        {"step": "a", "item": "large", "seconds": 0, "left_out": "too large"},
        {"step": "a", "item": "one", "seconds": 6, "x": 1},
        {"step": "a", "item": "two", "seconds": 6, "x": 1},
        {"step": "a", "left_out": "2 items for lack of time, the first: three"},
    ]


def test_an_error_has_the_first_line_of_its_message_as_reason() -> None:
    def fail() -> Record:
        raise RuntimeError(
            "CUDA error: an illegal memory access\nFor debugging consider\nCompile with"
        )

    (record,) = run_records([Item("item", fail)], Clock(), 1000)
    assert record["reason"] == "RuntimeError: CUDA error: an illegal memory access"
    assert record["error"].rstrip().endswith("Compile with")


def test_figures_that_json_has_not_become_text() -> None:
    numpy = pytest.importorskip("numpy")
    figures = {"a": float("nan"), "b": [float("inf"), 1.0], 3: {"c": numpy.float32(0.5)},
               "d": numpy.float32("nan"), "text": "x" * 10_000}  # fmt: skip
    (record,) = run_records([Item("item", lambda: figures)], Clock(), 1000)
    text = record.pop("text")
    assert record == {"step": "a", "item": "item", "seconds": 0, "a": "nan", "b": ["inf", 1.0],
                      "3": {"c": 0.5}, "d": "nan"}  # fmt: skip
    assert len(text) == child.MAX_TEXT


# Results


def test_a_line_that_was_cut_costs_no_other(tmp_path: Path) -> None:
    results.append(tmp_path, {"step": "a", "item": "one"})
    with (tmp_path / results.FILE).open("a") as file:
        file.write('{"step": "a", "item": "tw')
    results.append(tmp_path, {"step": "a", "item": "three"})
    assert [record["item"] for record in results.read(tmp_path)] == ["one", "three"]


def test_results_without_a_file_or_with_other_lines(tmp_path: Path) -> None:
    assert results.read(tmp_path) == []
    (tmp_path / results.FILE).write_bytes(b'7\n\xff\xfe\n{"x": 1}\n{"step": "a"}\n')
    assert results.read(tmp_path) == [{"step": "a"}]
