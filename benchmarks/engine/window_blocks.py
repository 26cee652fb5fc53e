"""Measures the effect of freeing KV blocks outside the attention window.

    python -m benchmarks.engine.window_blocks [--requests 64] [--prompt 6000] [--answer 2000]
                                       [--window 4096] [--pool-tokens 100000]

It runs the scheduler alone, with all requests at once, distinct prompts, and a token per sequence in every
step: once for a model with a full-attention layer, once for one with sliding windows only. Prints the number
of steps, concurrent sequences, blocks of a sequence at its end, and preemptions.
"""

import statistics
from dataclasses import dataclass

from benchmarks.options import option_parser

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput

BLOCK_SIZE = 16
TOKEN = SequenceOutput((7,))


@dataclass(frozen=True, slots=True)
class Outcome:
    num_steps: int
    mean_running: float
    blocks_at_end: int
    num_preemptions: int


def run(
    num_requests: int, prompt_tokens: int, answer_tokens: int, pool_tokens: int, window: int | None
) -> Outcome:
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=256, max_num_batched_tokens=2048, block_size=BLOCK_SIZE,
            max_model_len=prompt_tokens + answer_tokens + 1,
            num_blocks=pool_tokens // BLOCK_SIZE, window_tokens=window,
        )
    )  # fmt: skip
    sampling = SamplingParams(max_tokens=answer_tokens, ignore_eos=True)
    sequences = [
        Sequence(str(number), [number] * prompt_tokens, sampling, frozenset(), 0.0)
        for number in range(num_requests)
    ]
    for sequence in sequences:
        scheduler.add(sequence)
    running: list[int] = []
    blocks_at_end = 0
    while (step := scheduler.schedule(0.0)) is not None:
        running.append(len(step.sequences))
        last = sequences[-1]
        blocks_at_end = max(blocks_at_end, len(last.held_blocks) * (last.num_output_tokens > 0))
        scheduler.complete(step, dict.fromkeys((s.request_id for s in step.sequences), TOKEN), 0.0)
    scheduler.check()
    return Outcome(
        len(running), statistics.fmean(running), blocks_at_end, scheduler.stats().preemptions
    )


def main() -> None:
    args = option_parser(
        __doc__, requests=64, prompt=6000, answer=2000, window=4096, pool_tokens=100_000
    ).parse_args()
    for window in (None, args.window):
        outcome = run(args.requests, args.prompt, args.answer, args.pool_tokens, window)
        print(
            f"window {window}: {outcome.num_steps} steps, {outcome.mean_running:.1f} sequences in "
            f"one, {outcome.blocks_at_end} blocks at most for one that decodes, "
            f"{outcome.num_preemptions} preemptions",
            flush=True,
        )


if __name__ == "__main__":
    main()
