"""Time and memory of sampling by sampling parameters, compared with the estimate of the memory plan.

    python -m benchmarks.engine.sampling_cost [--vocab 152000] [--sequences 64] [--drafts 4] [--threads 2]
                                      [--rounds 3]

Each line is a mix of sampling parameters: the median time of sampling in one step, the increase of this
process's peak resident memory including the logits (VmHWM, reset through /proc/self/clear_refs), and the
estimate of the memory plan. Exits with 1 if a peak exceeds its estimate.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.options import option_parser

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence
from penstock_engine.machine import device
from penstock_engine.sampling.request_state import RequestStates
from penstock_engine.sampling.sampler import sample
from penstock_engine.sampling.sampling_sizes import sampling_bytes

ALL = {
    "temperature": 0.8, "top_k": 0, "top_p": 0.9, "min_p": 0.001, "repetition_penalty": 1.1,
    "frequency_penalty": 0.2, "presence_penalty": 0.1,
}  # fmt: skip
PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.2}


def mixes(vocab_size: int) -> dict[str, tuple[list[dict[str, Any]], int]]:
    """Mixes of sampling parameters, assigned to sequences in turn, with the length of their history."""
    allowed = frozenset(range(vocab_size - vocab_size // 75))
    return {
        "greedy": ([{"temperature": 0.0}], 100),
        "temperature": ([{"temperature": 0.8}], 100),
        "top_k 20": ([{"top_k": 20}], 100),
        "top_p 0.9": ([{"top_p": 0.9}], 100),
        "top_k 20, one top_p in 64": ([{"top_p": 0.9}, *([{"top_k": 20}] * 63)], 100),
        "logprobs 20": ([{"temperature": 0.0, "logprobs": 20}], 100),
        "all of these": ([ALL | {"logprobs": 20}, {"top_k": 20} | PENALTIES], 100),
        "penalties, 2k tokens": ([{"temperature": 0.0} | PENALTIES], 2_000),
        "penalties, 32k tokens": ([{"temperature": 0.0} | PENALTIES], 32_000),
        "one of 64 with allowed tokens": (
            [{"allowed_token_ids": allowed, "temperature": 0.0}, *([{"temperature": 0.0}] * 63)],
            100,
        ),
        "allowed tokens": ([{"allowed_token_ids": allowed, "temperature": 0.0}], 100),
    }


def sequences_of(
    settings: Sequence[dict[str, Any]], count: int, num_drafts: int, length: int, vocab_size: int
) -> list[ScheduledSequence]:
    made = []
    for index in range(count):
        history = [(index + step * 7919) % vocab_size for step in range(length)]
        sampling = SamplingParams(max_tokens=99, seed=index, **settings[index % len(settings)])
        drafts = tuple(range(num_drafts))
        made.append(
            ScheduledSequence(
                str(index), length - 1, (history[-1], *drafts), (), True, sampling, history,
                length // 2, num_drafts=num_drafts,
            )
        )  # fmt: skip
    return made


def peak_of(work: Callable[[], object]) -> int:
    """Peak memory of `work` in bytes, above the memory before it."""
    gc.collect()
    device.release_memory("cpu")
    Path("/proc/self/clear_refs").write_text("5")
    before_bytes = device.resident_bytes()
    work()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 - before_bytes
    raise OSError("the kernel does not tell of the peak")


def measure(
    sequences: Sequence[ScheduledSequence], vocab_size: int, dtype: torch.dtype, rounds: int
) -> tuple[float, int]:
    """Median seconds of sampling in one step, and its peak bytes including the logits."""
    num_rows = sum(sequence.num_rows for sequence in sequences)
    states = RequestStates()
    times_s: list[float] = []

    def draw() -> None:
        logits = torch.randn(num_rows, vocab_size, dtype=dtype).mul_(3)
        started_s = time.perf_counter()
        draws = sample(logits, sequences, states)
        times_s.append(time.perf_counter() - started_s)
        draws.results()

    peaks_bytes = [peak_of(draw) for _ in range(rounds + 1)]
    return statistics.median(times_s[1:]), max(peaks_bytes)


def main() -> None:
    args = option_parser(
        __doc__, vocab=152_000, sequences=64, drafts=4, threads=2, rounds=3
    ).parse_args()
    torch.set_num_threads(args.threads)
    is_above = False
    for num_drafts in sorted({0, args.drafts}):
        counted = sampling_bytes(
            max_num_seqs=args.sequences, rows_per_sequence=1 + num_drafts, vocab_size=args.vocab,
            item_bytes=4, device="cpu",
        )  # fmt: skip
        print(f"{args.sequences} sequences, {num_drafts} drafts: {counted >> 20} MiB counted")
        for name, (settings, length) in mixes(args.vocab).items():
            sequences = sequences_of(settings, args.sequences, num_drafts, length, args.vocab)
            time_s, peak_bytes = measure(sequences, args.vocab, torch.float32, args.rounds)
            is_above |= peak_bytes > counted
            print(f"  {name}: {time_s * 1e3:.0f} ms, peak {peak_bytes >> 20} MiB", flush=True)
    sys.exit(1 if is_above else 0)


if __name__ == "__main__":
    main()
