"""Compares the attention kernels with their torch references over shapes and number types.

    python -m benchmarks.engine.kernel_equality [--seed 0] [--part 1/10] [--device cuda [--full]]

Each case writes keys and values into a paged cache and attends over them, with the kernels and with the
references. Caches must be equal bit for bit, outputs to the precision of their type. The cases are a covering
array: every pair of values of any two factors occurs in a case. Without a GPU they run under Triton's
interpreter. --full runs all combinations of shapes on a GPU, in random order, for at most --seconds. Exits
with 1 if a case differs.
"""

import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any

from benchmarks.options import option_parser

if __name__ == "__main__" and "cuda" not in sys.argv:  # Triton reads this variable at import
    os.environ["TRITON_INTERPRET"] = "1"

import torch
from tests.support.engine.covering_array import covering_array
from tests.support.engine.kernel_references import paged_attention_reference

from penstock_engine.kernels.kv_write import kv_write, kv_write_reference
from penstock_engine.kernels.paged_attention import paged_attention
from penstock_engine.kernels.paged_batch import PagedBatch

SHAPES: dict[str, tuple[Any, ...]] = {
    "heads": (1, 2, 3, 4, 5, 7, 8, 12, 14, 16, 20, 28, 32, 48, 64),
    "group": (1, 2, 3, 4, 5, 7, 8, 12, 14, 16),
    "head_dim": (64, 72, 80, 96, 112, 128, 160, 192, 256),
    "block_size": (8, 16, 24, 32, 64),
    "length": (
        0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 500, 1023, 1024, 1025,
        2049, 4096, 5000,
    ),
    "batch": (1, 2, 3, 8, 16, 31, 32, 33, 65),
}  # fmt: skip
FACTORS = SHAPES | {
    "queries": (1, 2, 5, 16, 17, 64, 100),
    "window": (0, 1, 8, 100, 4096),
    "softcap": (0.0, 30.0),
    "dtype": ("float32", "float16", "bfloat16"),
    "cache": ("same", "int8", "float8_e4m3fn"),
}
# Tolerance relative to the largest outputs, about 2. In half precision attention weights are rounded too.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
MAX_PROGRAMS, MAX_READS = 260, 500_000  # seconds per case under the interpreter
# Limits of the other sequences of a batch; larger ones take time and test little more.
MAX_LENGTH_NEARBY, MAX_QUERIES_NEARBY = 40, 4
MAX_WRITTEN = 50  # tokens written by the kernel; the reference writes the others


Fill = Callable[..., torch.Tensor]  # makes a tensor of a shape, or of a shape and a value


@dataclass(frozen=True, slots=True)
class Case:
    """Case of the covering array. length, queries: of the largest sequence of the batch."""

    heads: int
    group: int
    head_dim: int
    block_size: int
    length: int
    batch: int
    queries: int
    window: int
    softcap: float
    dtype: str
    cache: str


def is_possible(row: Mapping[str, Any]) -> bool:
    """Whether the chosen factors are a valid combination; a partial choice counts too."""
    return "heads" not in row or "group" not in row or row["heads"] % row["group"] == 0


def is_small(
    row: Mapping[str, Any], *, max_programs: int = MAX_PROGRAMS, max_reads: int = MAX_READS
) -> bool:
    """Whether a case is possible and cheap for the interpreter: few programs and few keys read."""
    if not is_possible(row):
        return False
    # The smallest value stands for a factor that is not chosen yet.
    heads, queries = row.get("heads", row.get("group", 1)), row.get("queries", 1)
    group = row.get("group") or max(group for group in SHAPES["group"] if heads % group == 0)
    length, window = row.get("length", 1), row.get("window", 1)
    seen = min(length, window + queries) if window else length
    num_programs = heads // group * row.get("batch", 1)
    return bool(num_programs <= max_programs and heads * queries * seen <= max_reads)


def cases(seed: int, factors: Mapping[str, tuple[Any, ...]] = FACTORS, **limits: int) -> list[Case]:
    """Covering array of the cases within the limits of is_small."""
    rows = covering_array(factors, lambda row: is_small(row, **limits), random.Random(seed))
    return [Case(**row) for row in rows]


def product(seed: int) -> Iterator[Case]:
    """All combinations of shapes in random order; the other factors are drawn at random."""
    draw = random.Random(seed)
    rows = [dict(zip(SHAPES, row, strict=True)) for row in itertools.product(*SHAPES.values())]
    draw.shuffle(rows)
    for row in filter(is_possible, rows):
        yield Case(**{name: draw.choice(FACTORS[name]) for name in FACTORS} | row)


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of kernel and reference. Lists are by sequence, tensors on the device."""

    lengths: list[int]
    queries: list[int]
    tables: torch.Tensor
    slots: torch.Tensor
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    @staticmethod
    def of(
        case: Case, draw: random.Random, device: str, normal: Fill | None = None
    ) -> "Batch":  # fmt: skip
        """The batch of a case. normal: makes a tensor of a shape; None: of random numbers."""
        longest_nearby = min(case.length, MAX_LENGTH_NEARBY)
        nearby = [draw.randint(0, longest_nearby) for _ in range(case.batch - 1)]
        lengths = [case.length, *nearby]
        queries = [min(case.queries, case.length)]
        most_nearby = min(case.queries, MAX_QUERIES_NEARBY)
        queries += [draw.randint(0, min(most_nearby, length)) for length in nearby]
        # A decode row exists even if its sequence is padding of length 0.
        queries = [1] * case.batch if case.queries == 1 else queries
        tables, slots = place(lengths, case.block_size, draw)
        kv_heads = case.heads // case.group
        dtype = getattr(torch, case.dtype)
        generator = torch.Generator(device).manual_seed(draw.randrange(2**31))
        normal = partial(normal or partial(torch.randn, generator=generator), device=device)
        # Keys and values are views of one projection. With large queries few keys dominate, so that
        # a single missing key changes the result.
        projected = normal((sum(lengths), 2 * kv_heads, case.head_dim)).to(dtype)
        query = normal((sum(queries), case.heads, case.head_dim)).to(dtype) * 2
        keys, values = projected[:, :kv_heads], projected[:, kv_heads:]
        return Batch(
            lengths, queries, tables.to(device), slots.to(device), query, keys, values
        )  # fmt: skip


def place(
    lengths: list[int], block_size: int, draw: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Block tables (int32 [sequences, width]) over shuffled blocks, and the slot of each token.

    Entries after a sequence's own blocks point outside the pool, so a read of them fails.
    """
    counts = [-(-length // block_size) for length in lengths]
    free = draw.sample(range(sum(counts)), sum(counts))
    tables = torch.full((len(lengths), max(counts) + 1), 2**30, dtype=torch.int32)
    slots = []
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        blocks = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
        tables[row, :count] = blocks
        positions = torch.arange(length)
        slots.append(blocks[positions // block_size].long() * block_size + positions % block_size)
    return tables, torch.cat(slots)


def empty_cache(
    case: Case, num_blocks: int, device: str, full: Fill = torch.full
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Cache filled with NaN, in values or scales, so that a read of unwritten slots shows."""
    kv_heads = case.heads // case.group
    shape = (2, num_blocks, case.block_size, kv_heads, case.head_dim)
    if case.cache == "same":
        dtype = getattr(torch, case.dtype)
        return full(shape, torch.nan, dtype=dtype, device=device), None
    cache = full(shape, 100, dtype=torch.uint8, device=device)
    scales = full(shape[:-1], torch.nan, device=device)
    return cache.view(getattr(torch, case.cache)), scales


def differences(case: Case, seed: int, device: str) -> list[str]:
    """Describe the differences of a case; empty if none."""
    batch = Batch.of(case, random.Random(f"{seed} {astuple(case)}"), device)
    num_blocks = sum(-(-length // case.block_size) for length in batch.lengths) + 1
    cache, scales = empty_cache(case, num_blocks, device)
    kv_write_reference(batch.keys, batch.values, cache, batch.slots, scales)
    wrong = [] if writes_as_it_stands(batch, cache, scales) else ["the caches"]
    if len(batch.query):
        # The reference may read a whole table.
        expected, actual = (
            attend(attention, case, batch, cache, scales)
            for attention in (paged_attention_reference, paged_attention)
        )
        tolerance = TOLERANCE[expected.dtype]
        if not torch.allclose(actual, expected, atol=tolerance, rtol=tolerance):
            wrong.append(f"the outputs, by {(actual - expected).abs().max():.1e}")
    return wrong


def writes_as_it_stands(batch: Batch, cache: torch.Tensor, scales: torch.Tensor | None) -> bool:
    """Whether the kernel rewrites some erased tokens bit for bit."""
    if not len(batch.slots):
        return True
    some = torch.linspace(0, len(batch.slots) - 1, min(len(batch.slots), MAX_WRITTEN)).long()
    slots = batch.slots[some]
    copy, copied_scales = cache.clone(), None if scales is None else scales.clone()
    copy.view(torch.uint8).flatten(1, 2)[:, slots] = 0
    if copied_scales is not None:
        copied_scales.flatten(1, 2)[:, slots] = 0
    kv_write(batch.keys[some], batch.values[some], copy, slots, copied_scales)
    return equal_bits(cache, copy) and equal_bits(scales, copied_scales)


def equal_bits(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def attend(
    attention: Callable[..., torch.Tensor], case: Case, batch: Batch, cache: torch.Tensor,
    scales: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """Outputs of an implementation of paged attention."""
    lengths = torch.tensor(batch.lengths, dtype=torch.int32, device=batch.query.device)
    starts = lengths.new_tensor([0, *itertools.accumulate(batch.queries)])
    queries = starts if case.queries > 1 else None
    paged = PagedBatch(batch.tables, queries, lengths, max(batch.queries), max(batch.lengths))
    options = {"window": case.window, "softcap": case.softcap, "kv_scales": scales}
    return attention(batch.query, cache, paged, case.head_dim**-0.5, **options)


def campaign(selected: list[Case], seed: int, device: str, seconds: float) -> tuple[int, int]:
    """Run cases and print each difference. Returns the number of cases and of differing ones."""
    started = time.monotonic()
    num_run = num_different = 0
    for case in selected:
        if time.monotonic() - started > seconds:
            break
        wrong = differences(case, seed, device)
        num_run += 1
        num_different += bool(wrong)
        if wrong:
            print(f"{case}: {', '.join(wrong)} differ", flush=True)
    return num_run, num_different


def main() -> None:
    parser = option_parser(__doc__, seed=0, seconds=float("inf"))
    parser.add_argument("--part", default="1/1", help="2/10: every tenth case from the second")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--full", action="store_true", help="the whole product of the shapes")
    args = parser.parse_args()
    if args.device == "cpu":
        skip_what_is_idle()
    part, num_parts = map(int, args.part.split("/"))
    every = list(product(args.seed)) if args.full else cases(args.seed)
    started = time.monotonic()
    selected = every[part - 1 :: num_parts]
    num_run, num_different = campaign(selected, args.seed, args.device, args.seconds)
    print(
        f"kernel equality on {args.device}: {num_run - num_different} of {num_run} cases equal"
        f" (of {len(every)} in all), {time.monotonic() - started:.0f} s"
    )
    sys.exit(1 if num_different else 0)


def skip_what_is_idle() -> None:
    """Speed up Triton's interpreter by removing repeated work.

    It patches the language module again at each call between kernel functions, although the first patch
    stays. It also recomputes integer sums and products in a wider type for an assertion of debug mode.
    """
    from triton.runtime.interpreter import InterpretedFunction, interpreter_builder

    options = interpreter_builder.options
    assert not options.debug
    interpreter_builder.options = replace(options, sanitize_overflow=False)
    call_and_patch = InterpretedFunction.__call__
    called = set()

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.fn in called:
            return self.rewrite()(*args, **kwargs)
        called.add(self.fn)
        return call_and_patch(self, *args, **kwargs)

    InterpretedFunction.__call__ = call


if __name__ == "__main__":
    main()
