"""Prompts: FLOP/s of their forward passes, against the device's peak and against a large product's rate."""

import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from benchmarks.gpu.context import Context, Item, Record
from benchmarks.gpu.meters.kernel_profile import profile_steps
from benchmarks.gpu.meters.peak import flop_rates
from benchmarks.gpu.workloads.models import BLOCK_SIZE, LoadedModel, ModelStore, make_model

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, Step
from penstock_engine.execution.pending_step import PendingStep
from penstock_engine.execution.runner import Runner

GREEDY = SamplingParams(max_tokens=1, temperature=0.0)
REPEATS = 3
LARGEST_STEP_TOKENS = 8192  # of a step, the engine's default on GPUs of 70 GiB and more


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt of a shape. chunk_tokens: its tokens in a step."""

    shape: str
    num_tokens: int
    chunk_tokens: int

    @property
    def name(self) -> str:
        chunks = f" in chunks of {self.chunk_tokens}" if self.is_chunked else ""
        return f"{self.shape}, {self.num_tokens} tokens{chunks}"

    @property
    def is_chunked(self) -> bool:
        return self.chunk_tokens < self.num_tokens


CASES = (
    Case("8b", 8192, 8192), Case("8b", 2048, 2048), Case("8b", 8192, 2048),
    Case("0.6b", 8192, 8192), Case("0.6b", 2048, 2048), Case("0.6b", 8192, 2048),
)  # fmt: skip
SMALL_CASES = (Case("8b", 32, 32), Case("0.6b", 32, 16))


def items(context: Context) -> Iterator[Item]:
    """For each shape, its measurements, then its kernels: the profiler may fail."""
    cases = SMALL_CASES if context.is_small else CASES
    store = ModelStore(partial(_make, context=context))
    for shape in dict.fromkeys(case.shape for case in cases):
        own = [case for case in cases if case.shape == shape]
        for case in own:
            yield Item(case.name, partial(measure, case, store, context))
        for case in own:
            yield Item(f"{case.name}, kernels", partial(profile, case, store, context))


def measure(case: Case, store: ModelStore, context: Context) -> Record:
    """Time from the launch of a prompt's first step to its sampled token, and the FLOP/s of that.

    peak_share: of the device's peak; product_share: of the measured rate of a large product.
    """
    loaded = store.get(case.shape)
    steps = prompt_steps(case, loaded.model.vocab_size, context.seed)
    times_s = []
    for _ in range(1 if context.is_small else 1 + REPEATS):
        started_s = time.perf_counter()
        num_sampled = run_prompt(loaded.runner, steps)
        times_s.append(time.perf_counter() - started_s)
    prompt_s = statistics.median(times_s[-REPEATS:])  # the first run compiles kernels
    flops = sum(loaded.cost.estimate(step.sequences).flops for step in steps)
    return {
        "ok": num_sampled == 1,
        "shape": case.shape,
        "num_tokens": case.num_tokens,
        "chunk_tokens": case.chunk_tokens,
        "prompt_s": prompt_s,
        "first_run_s": times_s[0],
        "tokens_per_s": case.num_tokens / prompt_s,
        **flop_rates(flops, prompt_s, context.machine),
    }


def profile(case: Case, store: ModelStore, context: Context) -> Record:
    """The kernels of a prompt: their number, times, and the largest ones."""
    loaded = store.get(case.shape)
    steps = prompt_steps(case, loaded.model.vocab_size, context.seed)
    work = partial(run_prompt, loaded.runner, steps)
    if not context.is_small:
        work()  # so that nothing is compiled while it is profiled
    return profile_steps(work, context.device, 1)


def prompt_steps(case: Case, vocab_size: int, seed: int) -> list[Step]:
    """The steps of one prompt of random tokens: equal ones would be multiplied with less power."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(vocab_size, size=case.num_tokens).tolist()
    num_blocks = -(-case.num_tokens // BLOCK_SIZE)
    table = tuple(generator.permutation(num_blocks).tolist())
    steps = []
    for start in range(0, case.num_tokens, case.chunk_tokens):
        end = min(start + case.chunk_tokens, case.num_tokens)
        is_last = end == case.num_tokens
        sequence = ScheduledSequence(
            "0", start, tuple(tokens[start:end]), table, is_last, GREEDY, tokens, case.num_tokens
        )
        steps.append(Step((sequence,)))
    return steps


def run_prompt(runner: Runner, steps: list[Step]) -> int:
    """Run steps as the engine's loop does. Returns the number of sampled tokens."""
    in_flight: deque[PendingStep] = deque()
    num_sampled = 0
    for step in steps:
        in_flight.append(runner.launch(step))
        if len(in_flight) >= runner.depth:
            num_sampled += _num_tokens(in_flight.popleft())
    while in_flight:
        num_sampled += _num_tokens(in_flight.popleft())
    return num_sampled


def _num_tokens(step: PendingStep) -> int:
    return sum(len(output.token_ids) for output in step.wait().values())


def _make(shape: str, context: Context) -> LoadedModel:
    cases = SMALL_CASES if context.is_small else CASES
    longest = max(case.num_tokens for case in cases)
    return make_model(
        shape, context, num_blocks=-(-longest // BLOCK_SIZE), max_num_seqs=1,
        max_num_batched_tokens=32 if context.is_small else LARGEST_STEP_TOKENS,
        max_model_len=longest + 1,
    )  # fmt: skip
