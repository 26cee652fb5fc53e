"""The CPU is measured over step time, and the thread that computes gets its number of threads."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, Step
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.execution.warm_up import weight_steps
from penstock_engine.machine.cgroup import throttled_s
from penstock_engine.machine.cpu_threads import (
    MAX_PAUSE_S,
    WINDOW_S,
    CpuCounters,
    CpuThreads,
    allowed_threads,
    read_counters,
)

STEP_S = WINDOW_S / 5


class Machine:
    """A clock, counters that grow with it, and the number of threads that was set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 50.0
        self.waiting_threads = self.idle_cores = 0.0
        self.waited_s = self.idle_s = 1000.0
        self.is_counted = True
        self.set: list[int] = []
        self.told: list[int] = []
        monkeypatch.setattr(torch, "set_num_threads", self.set.append)
        self.threads = CpuThreads(
            2, on_count=self.told.append, read=self.read, clock=lambda: self.now_s
        )

    def read(self) -> CpuCounters | None:
        return CpuCounters(self.waited_s, self.idle_s) if self.is_counted else None

    def pass_by(self, seconds: float, idle_cores: float) -> None:
        self.now_s += seconds
        self.waited_s += seconds * self.waiting_threads
        self.idle_s += seconds * idle_cores

    def steps(self, num_steps: int, pause_s: float = 0.0) -> int:
        """Returns the number of threads after them."""
        for _ in range(num_steps):
            with self.threads.step():
                self.pass_by(STEP_S, self.idle_cores)
            self.pass_by(pause_s, 2.0)
        return self.threads.count


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_threads_that_wait_are_given_up_and_taken_back(machine: Machine) -> None:
    assert machine.steps(20) == 2
    machine.waiting_threads = 0.7
    assert machine.steps(6) == 1
    machine.waiting_threads, machine.idle_cores = 0.0, 1.0
    assert machine.steps(20) == 1
    assert machine.steps(60) == 2
    assert machine.set == machine.told == [2, 1, 2]


def test_one_slow_step_is_enough(machine: Machine) -> None:
    machine.waiting_threads = 0.7
    with machine.threads.step():
        machine.pass_by(1.0, 0.0)
    assert machine.threads.count == 1


def test_a_step_that_fails_counts(machine: Machine) -> None:
    machine.waiting_threads = 0.7

    def fail() -> None:
        with machine.threads.step():
            machine.pass_by(1.0, 0.0)
            raise ValueError("no such token")

    with pytest.raises(ValueError, match="no such token"):
        fail()
    assert machine.threads.count == 1


@pytest.mark.parametrize("pause_s", [MAX_PAUSE_S / 2, 30.0], ids=["short", "long"])
def test_cores_are_not_free_because_nothing_is_computed(machine: Machine, pause_s: float) -> None:
    """Two cores are used in steps, one of them by others, and none between steps."""
    machine.waiting_threads = 0.7
    machine.steps(6)
    machine.waiting_threads = 0.0
    assert machine.steps(100, pause_s) == 1


def test_waits_between_steps_do_not_count(machine: Machine) -> None:
    for _ in range(30):
        machine.steps(1)
        machine.waiting_threads = 2.0
        machine.pass_by(1.0, 0.0)
        machine.waiting_threads = 0.0
    assert machine.threads.count == 2


def test_the_number_stays_where_nothing_is_counted(machine: Machine) -> None:
    machine.is_counted = False
    machine.waiting_threads = 2.0
    assert machine.steps(100) == 2


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def stat(idle_ticks: int) -> str:
    """A /proc/stat in which each core was idle, and a quarter of that waited for disks."""
    cores = (f"cpu{core}" for core in (*os.sched_getaffinity(0), 4000))
    lines = (f"{core} 10 0 5 {idle_ticks} {idle_ticks // 4} 0 0 0 0 0\n" for core in cores)
    return "cpu  1 2 3 4 5 6 7\n" + "".join(lines) + "intr 5 6\n"


def test_counters_of_the_kernel(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/stat": stat(400),
            "proc/self/task/1/schedstat": "5 2000000000 7\n",
            "proc/self/task/2/schedstat": "5 500000000 7\n",
            "proc/self/task/3/status": "a thread that has ended\n",
        },
    )
    num_cores, tick_s = len(os.sched_getaffinity(0)), 1 / os.sysconf("SC_CLK_TCK")
    assert read_counters(root) == CpuCounters(2.5, pytest.approx(num_cores * 500 * tick_s))


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"proc/stat": stat(400)},
        {"proc/self/task/1/schedstat": "5 2000000000 7\n"},
        {"proc/self/task/1/schedstat": "5 2000000000 7\n", "proc/stat": stat(0)},
    ],
    ids=["none", "no-waits", "no-idle-time", "idle-time-stands-still"],
)
def test_a_kernel_that_does_not_count(tmp_path: Path, texts: dict[str, str]) -> None:
    assert read_counters(files(tmp_path, texts)) is None


@pytest.mark.parametrize(
    "texts",
    [
        {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.stat": "throttled_usec 1500000\n"},
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/pod\n",
            "sys/fs/cgroup/cpu/pod/cpu.stat": "nr_throttled 4\nthrottled_time 1000000000\n",
            "sys/fs/cgroup/cpu/cpu.stat": "nr_throttled 4\nthrottled_time 500000000\n",
        },
    ],
    ids=["v2", "v1"],
)
def test_time_without_quota_counts_as_waiting(tmp_path: Path, texts: dict[str, str]) -> None:
    waits = {"proc/stat": stat(4), "proc/self/task/1/schedstat": "5 2000000000 7\n"}
    root = files(tmp_path, texts | waits)
    assert throttled_s(root) == pytest.approx(1.5)
    counters = read_counters(root)
    assert counters is not None
    assert counters.waited_s == pytest.approx(3.5)


def test_each_thread_that_computes_gets_the_number(machine: Machine) -> None:
    machine.waiting_threads = 0.7
    in_new_thread(lambda: void(machine.steps(6)))
    in_new_thread(lambda: void(machine.steps(6)))
    assert machine.set == [2, 1, 1]


def test_the_warm_up_gives_threads_up(qwen3_dir: Path) -> None:
    """A start beside other programs would else take as long as spinning threads do."""
    sizes = {"max_num_seqs": 2, "max_num_batched_tokens": 8, "max_model_len": 64}
    config = RunnerConfig(
        model_dir=qwen3_dir, device="cpu", dtype="float32", num_blocks=4, block_size=16, **sizes
    )
    allowed = allowed_threads()
    try:
        runner = Runner.load(config)
        waits_s, now_s = iter(range(0, 100_000, 1000)), iter(range(1000))
        runner._threads = threads = CpuThreads(
            3, read=lambda: CpuCounters(float(next(waits_s)), 0.0), clock=lambda: float(next(now_s))
        )
        runner.warm_up(weight_steps(config))
        assert threads.count == 1
    finally:
        torch.set_num_threads(allowed)


def void(_: object) -> None:
    pass


def in_new_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_thread_that_computes_gets_the_number(qwen3_dir: Path) -> None:
    """Another than that which warms up. A runner that is loaded later begins with all threads."""
    allowed = allowed_threads()
    sizes = {"max_num_seqs": 2, "max_num_batched_tokens": 8, "max_model_len": 64}
    config = RunnerConfig(
        model_dir=qwen3_dir, device="cpu", dtype="float32", num_blocks=4, block_size=16, **sizes
    )
    told: list[int] = []
    runner = Runner.load(config, on_threads=told.append)
    assert told[0] == allowed
    told.clear()
    waits_s, now_s = iter(range(0, 100_000, 1000)), iter(range(1000))
    runner._threads = CpuThreads(
        3, read=lambda: CpuCounters(float(next(waits_s)), 0.0), clock=lambda: float(next(now_s))
    )
    greedy = SamplingParams(max_tokens=1, temperature=0.0)
    counts = []

    def work() -> None:
        for _ in range(3):
            runner.run(Step((ScheduledSequence("a", 0, (1,), (0,), True, greedy, (1,), 1),)))
            counts.append(torch.get_num_threads())

    try:
        in_new_thread(work)
        assert counts == [1, 1, 1]
        assert allowed_threads() == allowed
        Runner.load(config, on_threads=told.append)
        assert told[0] == allowed
    finally:
        torch.set_num_threads(allowed)
