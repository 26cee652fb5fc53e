"""Measures the device's idle time between steps, with and without launching one step ahead.

    python -m benchmarks.engine.step_overlap [--rounds 5] [--step-ms 5]

Two runners under the engine's loop and scheduler, at depth 1 and depth 2 in turns:

paced   simulates a device beside the host: a step takes --step-ms once the device is free, and returns
        token 7. The device's idle time is counted.
model   a small random model of Qwen3's shape on the CPU, which computes steps at launch. Nothing can overlap,
        so this measures the host's cost of launching ahead.
"""

import queue
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from benchmarks.options import option_parser

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.loop.engine_loop import EngineLoop, StepReport
from penstock_engine.loop.step_pipeline import StepHandle, StepRunner

SIZES = {
    "num_blocks": 2048, "block_size": 16, "max_num_seqs": 64, "max_num_batched_tokens": 512,
    "max_model_len": 512,
}  # fmt: skip
NUM_PROMPT_TOKENS, NUM_OUTPUT_TOKENS = 24, 64


@dataclass
class Times:
    """Times of a run. host_s: CPU time of the loop's thread outside launch and wait.

    idle_s: device idle time between its first and last step.
    """

    num_steps: int = 0
    host_s: float = 0.0
    idle_s: float = 0.0


class Timed:
    """Runner wrapper that records times."""

    def __init__(self, inner: StepRunner, depth: int, times: Times) -> None:
        self.depth = depth
        self.inner = inner
        self.times = times
        self.left_s: float | None = None

    def launch(self, step: Step) -> StepHandle:
        self.enter()
        self.times.num_steps += 1
        launched = self.inner.launch(step)
        self.left_s = time.thread_time()
        return TimedWait(self, launched)

    def enter(self) -> None:
        if self.left_s is not None:
            self.times.host_s += time.thread_time() - self.left_s


@dataclass
class TimedWait:
    timed: Timed
    launched: StepHandle

    def wait(self) -> dict[str, SequenceOutput]:
        self.timed.enter()
        sampled = self.launched.wait()
        self.timed.left_s = time.thread_time()
        return sampled


class Paced:
    """Simulated device with a constant time per step, one step after the other."""

    depth = 2

    def __init__(self, step_s: float, times: Times) -> None:
        self.step_s = step_s
        self.times = times
        self.free_s: float | None = None

    def launch(self, step: Step) -> StepHandle:
        now_s = time.perf_counter()
        if self.free_s is not None:
            self.times.idle_s += max(0.0, now_s - self.free_s)
        self.free_s = max(now_s, self.free_s or 0.0) + self.step_s
        drawn = {s.request_id: SequenceOutput((7,)) for s in step.sequences if s.is_sampled}
        return Done(drawn, self.free_s)


@dataclass
class Done:
    sampled: dict[str, SequenceOutput]
    at_s: float

    def wait(self) -> dict[str, SequenceOutput]:
        time.sleep(max(0.0, self.at_s - time.perf_counter()))
        return self.sampled


def run(runner: StepRunner, num_sequences: int) -> float:
    """Run one configuration. Returns tokens/s."""
    scheduler = Scheduler(SchedulerConfig(**SIZES))
    reports: queue.SimpleQueue[StepReport] = queue.SimpleQueue()
    loop = EngineLoop(scheduler, runner, on_step=reports.put)
    sampling = SamplingParams(max_tokens=NUM_OUTPUT_TOKENS, temperature=0.0, ignore_eos=True)
    for number in range(num_sequences):
        prompt = [(number + i) % 64 for i in range(NUM_PROMPT_TOKENS)]
        loop.submit(Sequence(str(number), prompt, sampling, frozenset({63}), 0.0))
    started_s = time.perf_counter()
    loop.start()
    num_left = num_sequences
    while num_left:
        num_left -= sum(1 for event in reports.get().events if event.finish_reason)
    duration_s = time.perf_counter() - started_s
    loop.stop()
    return num_sequences * NUM_OUTPUT_TOKENS / duration_s


def make_model(directory: Path) -> None:
    config = transformers.Qwen3Config(
        vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=4, head_dim=16, max_position_embeddings=512,
        tie_word_embeddings=True, initializer_range=0.2, bos_token_id=0, eos_token_id=63,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.Qwen3ForCausalLM(config).save_pretrained(directory)


def compare(
    name: str, make: Callable[[Times], StepRunner], num_sequences: int, rounds: int
) -> None:
    """Print medians of depth 1 and depth 2 over alternating rounds."""
    found: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
    for _ in range(rounds):
        for depth, rows in found.items():
            times = Times()
            tokens_per_s = run(Timed(make(times), depth, times), num_sequences)
            steps = times.num_steps
            rows.append((tokens_per_s, 1e3 * times.host_s / steps, 1e3 * times.idle_s / steps))
    for depth, rows in found.items():
        rate, host_ms, idle_ms = map(statistics.median, zip(*rows, strict=True))
        idle = f"{idle_ms:8.3f}" if name == "paced" else "       -"
        print(f"{name:6} {num_sequences:9} {depth:6} {rate:10.0f} {host_ms:12.3f} {idle}")


def main() -> None:
    args = option_parser(__doc__, rounds=5, step_ms=5.0).parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    print("runner sequences  depth   tokens/s host ms/step idle ms/step")
    for num_sequences in (1, 16, 64):
        compare("paced", lambda t: Paced(args.step_ms / 1e3, t), num_sequences, args.rounds)
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        config = RunnerConfig(model_dir=Path(folder), device="cpu", dtype="float32", **SIZES)
        runner = Runner.load(config)
        for num_sequences in (1, 16, 64):
            compare("model", lambda _: runner, num_sequences, args.rounds)


if __name__ == "__main__":
    sys.exit(main())
