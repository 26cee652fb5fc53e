"""Measures a CPU engine with adaptive threads beside other programs, and alone.

    python -m benchmarks.engine.cpu_contention MODEL [--rounds 3] [--seconds 6]

Rates are tokens/s of one decoding sequence on the same two cores, in processes that drive the engine's
Runner. The comparisons of a round are adjacent in time, so that other load affects both sides of a ratio.
`others` is the number of cores used by other processes; rounds above --max-others do not count. Exits with 1
if the median ratio of a comparison is below its bar, or if no round was quiet.

- alone: adaptive threads against two fixed threads, which spin.
- busy core: adaptive threads against one fixed thread, both beside a program that keeps a core busy.
- four engines: the sum of four engines at once against a single engine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.options import option_parser

MODULE = "benchmarks.engine.cpu_contention"
NUM_CORES = 2
# Seconds before each measurement, in which the engine adapts its threads.
SETTLE_S = 4.0
BARS = {"alone": 0.95, "busy core": 0.8, "four engines": 0.8}
# Positions of the decoded tokens, repeated.
FIRST, END, BLOCK_SIZE = 64, 256, 16
ADAPTIVE, ONE, TWO = "adaptive", "1", "2"


class Worker:
    """Process that decodes on request. threads: adaptive, or a fixed number."""

    def __init__(self, model_dir: Path, threads: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(model_dir), "--worker", threads],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._read()

    def start(self, seconds: float) -> None:
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)

    def rate(self) -> float:
        """Tokens/s over the requested time."""
        return float(self._read())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("a worker has ended")
        return line


def decode(model_dir: Path, threads: str) -> None:
    """Worker loop: reads seconds from its input and writes the measured rate to its output."""
    import torch

    from penstock_engine.core.sampling import SamplingParams
    from penstock_engine.core.step import ScheduledSequence, Step
    from penstock_engine.execution.runner import Runner
    from penstock_engine.execution.runner_config import RunnerConfig
    from penstock_engine.machine import device
    from penstock_engine.machine.cpu_threads import CpuThreads

    config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype=device.choose_dtype("auto", "cpu"),
        num_blocks=END // BLOCK_SIZE, block_size=BLOCK_SIZE, max_num_seqs=1,
        max_num_batched_tokens=BLOCK_SIZE, max_model_len=END,
    )  # fmt: skip
    runner = Runner.load(config)
    if threads != ADAPTIVE:
        runner._threads = None
        torch.set_num_threads(int(threads))
    assert threads != ADAPTIVE or isinstance(runner._threads, CpuThreads)
    greedy = SamplingParams(max_tokens=1, temperature=0.0)
    blocks = tuple(range(END // BLOCK_SIZE))
    num_steps = 0

    def run_for(seconds: float) -> float:
        nonlocal num_steps
        started_s, before = time.monotonic(), num_steps
        while time.monotonic() < started_s + seconds:
            position = FIRST + num_steps % (END - FIRST)
            sequence = ScheduledSequence("a", position, (7,), blocks, True, greedy, (7,), 1)
            runner.run(Step((sequence,)))
            num_steps += 1
        return (num_steps - before) / (time.monotonic() - started_s)

    print("ready", flush=True)
    for line in sys.stdin:
        run_for(SETTLE_S)
        print(run_for(float(line)), flush=True)


@contextmanager
def busy_core() -> Iterator[int]:
    """Run a program that keeps a core busy. Yields its process id."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def busy_s() -> float:
    """Busy seconds of this process's cores since boot."""
    own = {f"cpu{index}" for index in os.sched_getaffinity(0)}
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    ticks = sum(int(words[i]) for words in lines if words[0] in own for i in (1, 2, 3, 6, 7, 8))
    return ticks / os.sysconf("SC_CLK_TCK")


def used_s(pids: Sequence[int]) -> float:
    """CPU seconds of these processes."""
    texts = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(words[11]) + int(words[12]) for words in texts) / os.sysconf("SC_CLK_TCK")


def measure(workers: Sequence[Worker], pids: Sequence[int], seconds: float) -> tuple[float, float]:
    """Sum of the workers' simultaneous rates, and cores used by processes other than pids."""
    started_s = time.monotonic()
    others_s = busy_s() - used_s(pids)
    for worker in workers:
        worker.start(seconds)
    rate = sum(worker.rate() for worker in workers)
    others_s = busy_s() - used_s(pids) - others_s
    return rate, others_s / (time.monotonic() - started_s)


def main() -> None:
    parser = option_parser(__doc__, rounds=3, seconds=6.0)
    parser.add_argument("model", type=Path)
    parser.add_argument("--max-others", type=float, default=0.2, help="Cores in a quiet round.")
    parser.add_argument("--worker", choices=(ADAPTIVE, ONE, TWO), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return decode(args.model, args.worker)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:NUM_CORES])
    workers = [Worker(args.model, kind) for kind in (*[ADAPTIVE] * 4, ONE, TWO)]
    try:
        ok = compare(workers, args.rounds, args.seconds, args.max_others)
    finally:
        for worker in workers:
            worker.close()
    sys.exit(0 if ok else 1)


def compare(workers: Sequence[Worker], num_rounds: int, seconds: float, max_others: float) -> bool:
    """Compare medians over quiet rounds with the bars. Returns whether all reach them.

    workers: four adaptive ones, one thread, two threads. max_others: cores that other programs may use
    in a counted round.
    """
    four, adaptive, one, two = workers[:4], workers[:1], workers[4:5], workers[5:]
    sides = {
        "alone": (adaptive, two),
        "busy core": (adaptive, one),
        "four engines": (four, adaptive),
    }
    ratios: dict[str, list[float]] = {name: [] for name in BARS}
    pids = [worker.pid for worker in workers]
    print("round comparison     tokens/s  against  ratio  others", flush=True)
    for index in range(num_rounds):
        for name, pair in sides.items():
            with busy_core() if name == "busy core" else nullcontext() as busy:
                own = [*pids, busy] if busy else pids
                order = (0, 1) if index % 2 else (1, 0)
                results = {side: measure(pair[side], own, seconds) for side in order}
            (rate, some), (against, more) = results[0], results[1]
            others = max(some, more)
            if others <= max_others:
                ratios[name].append(rate / against)
            print(
                f"{index:>5} {name:<13} {rate:>9.2f} {against:>8.2f} {rate / against:>6.2f} {others:>7.2f}",
                flush=True,
            )
    reached = {name: is_reached(name, ratios[name], bar) for name, bar in BARS.items()}
    return all(reached.values())


def is_reached(name: str, ratios: Sequence[float], bar: float) -> bool:
    if not ratios:
        print(f"{name}: no quiet round, bar {bar:.2f}")
        return False
    median = statistics.median(ratios)
    print(f"{name}: {median:.2f} in {len(ratios)} quiet rounds, bar {bar:.2f}")
    return median >= bar


if __name__ == "__main__":
    main()
