"""Cases of attention and of the KV cache: over a covering array, far into a cache, and beside a NaN."""

import itertools
import random
from dataclasses import astuple
from functools import partial
from typing import Any

import torch
from benchmarks.engine import kernel_equality
from benchmarks.engine.kernel_equality import FACTORS, Batch, attend, empty_cache
from benchmarks.gpu.cases.case import Case, Kind, Prepared, Row, compare, compare_bits
from benchmarks.gpu.cases.inputs import PADDINGS, Inputs
from tests.support.engine.kernel_references import paged_attention_reference

from penstock_engine.kernels.kv_write import kv_write, kv_write_reference
from penstock_engine.kernels.paged_attention import paged_attention
from penstock_engine.kernels.paged_batch import PagedBatch

# Fewer shapes than FACTORS, as each is compiled, but longer contexts and larger batches.
DEVICE_FACTORS = FACTORS | {
    "heads": (1, 4, 7, 12, 20, 32, 64),
    "group": (1, 2, 4, 5, 7, 8, 16),
    "head_dim": (64, 72, 96, 128, 192, 256),
    "block_size": (8, 16, 24, 64),
    "length": (0, 1, 2, 15, 16, 17, 64, 129, 500, 1025, 4097, 20_000),
    "batch": (1, 2, 8, 33, 65, 257),
    "queries": (1, 2, 17, 64, 513),
    "window": (0, 1, 100, 4096),
}
# Small case whose keys are split over programs.
SPLIT = kernel_equality.Case(2, 2, 64, 16, 300, 2, 1, 0, 0.0, "bfloat16", "same")
NO_LIMIT = 10**9
CACHE_TYPES = ("same", "int8", "float8_e4m3fn")
# Slots of a cache of more than 2**31 numbers per pool, of 8 heads of 128.
FAR_SLOTS, FEW_SLOTS = 2**21 + 4096, 512


def attention_cases(seed: int, *, is_small: bool) -> list[Case]:
    if is_small:
        chosen = [*kernel_equality.cases(seed, max_programs=65, max_reads=25_000)[::100], SPLIT]
    else:
        chosen = kernel_equality.cases(
            seed, DEVICE_FACTORS, max_programs=NO_LIMIT, max_reads=NO_LIMIT
        )
    return [
        Case("attention", " ".join(map(str, astuple(case))), partial(_attention, case, seed))
        for case in chosen
    ]


def _attention(case: kernel_equality.Case, seed: int, inputs: Inputs) -> Prepared:
    """A whole case of kernel_equality; with empty tensors, its launches alone."""
    if not inputs.is_empty:
        return Prepared(
            partial(kernel_equality.differences, case, seed, inputs.device), lambda found: found
        )
    normal = partial(torch.empty, dtype=getattr(torch, case.dtype))
    batch = Batch.of(case, random.Random(f"{seed} {astuple(case)}"), inputs.device, normal)
    num_blocks = sum(-(-length // case.block_size) for length in batch.lengths) + 1
    cache, scales = empty_cache(
        case, num_blocks, inputs.device, lambda shape, value, **options: torch.empty(shape, **options)
    )  # fmt: skip

    def launch() -> None:
        if len(batch.slots):  # differences() copies the rows that it writes
            keys = torch.empty_like(batch.keys[:1], memory_format=torch.contiguous_format)
            kv_write(keys, keys, cache, batch.slots[:1], scales)
        if len(batch.query):
            attend(paged_attention, case, batch, cache, scales)

    return Prepared(launch, lambda outputs: [])


def far_cases(*, is_small: bool) -> list[Case]:
    """Writes and reads at the end of a cache whose offsets need 64 bits."""
    num_slots = FEW_SLOTS if is_small else FAR_SLOTS
    return [
        Case("far in the cache", f"{cache} {queries}", partial(_far, num_slots, cache, queries))
        for cache, queries in itertools.product(CACHE_TYPES, (1, 3 if is_small else 40))
    ]


def _far(num_slots: int, cache_type: str, queries: int, inputs: Inputs) -> Prepared:
    """Two sequences in the last blocks; the rest of the cache is never touched."""
    num_heads, head_dim, block_size, length = 8, 128, 16, 90
    dtype = torch.bfloat16 if cache_type == "same" else getattr(torch, cache_type)
    shape = (2, num_slots // block_size, block_size, num_heads, head_dim)
    cache = torch.empty(shape, dtype=dtype, device=inputs.device)
    is_scaled = cache_type != "same"
    scales = torch.empty(shape[:-1], device=inputs.device) if is_scaled else None
    last = num_slots // block_size - 1
    tables = inputs.constant(list(range(last, last - 12, -1)), torch.int32).view(2, 6)
    slots = tables.long()[..., None] * block_size + inputs.constant(range(block_size), torch.int64)
    slots = slots.flatten(1)[:, :length].flatten().contiguous()
    keys, values = (
        inputs.normal(2 * length, num_heads, head_dim, dtype=torch.bfloat16) for _ in range(2)
    )
    query = inputs.normal(2 * queries, 2 * num_heads, head_dim, dtype=torch.bfloat16, std=2.0)
    starts = None if queries == 1 else inputs.constant([0, queries, 2 * queries], torch.int32)
    lengths = inputs.constant([length, length - 7], torch.int32)
    batch = PagedBatch(tables, starts, lengths, queries, length)

    def launch() -> tuple[torch.Tensor, ...]:
        kv_write(keys, values, cache, slots, scales)
        return cache.flatten(1, 2)[:, slots], paged_attention(
            query, cache, batch, 0.1, kv_scales=scales
        )

    def differences(outputs: tuple[torch.Tensor, ...]) -> list[str]:
        kv_write_reference(keys, values, cache, slots, scales)
        written = cache.flatten(1, 2)[:, slots]
        expected = paged_attention_reference(query, cache, batch, 0.1, kv_scales=scales)
        return [
            *compare_bits("the cache", outputs[0], written),
            *compare("the outputs", outputs[1], expected, 3e-2),
        ]

    return Prepared(launch, differences)


def _kv_write(row: Row, inputs: Inputs) -> Prepared:
    """Rows of padding are skipped, rows that are not finite are marked, others are equal bit for bit."""
    num_tokens, (num_heads, head_dim), block_size = row["tokens"], row["heads"], row["block_size"]
    keys, values = (
        inputs.normal(
            num_tokens, num_heads, head_dim, dtype=row["dtype"], padding=row["padding"]
        )
        for _ in range(2)
    )  # fmt: skip
    num_blocks = 2 + num_tokens // block_size
    shape = (2, num_blocks, block_size, num_heads, head_dim)
    is_scaled = row["cache"] != "same"
    cache = inputs.integers(0, 100, *shape, dtype=torch.int8)
    cache = cache.view(getattr(torch, row["cache"])) if is_scaled else cache.to(row["dtype"])
    scales = inputs.uniform(*shape[:-1]) if is_scaled else None
    slots = torch.randperm(num_blocks * block_size, generator=torch.Generator().manual_seed(1))
    slots = slots[:num_tokens].to(inputs.device)
    if not inputs.is_empty:
        slots[1::3] = -1
        values[0] = 0.0  # whose scale must not become 0
        keys[3::8, 0, 5], values[4::8, 0, 7] = torch.nan, torch.inf
    before = (cache.clone(), None if scales is None else scales.clone())

    def launch() -> None:
        kv_write(keys, values, cache, slots, scales)

    def differences(outputs: None) -> list[str]:
        kept = slots >= 0
        expected, expected_scales = before
        marked = _marked(keys[kept], values[kept])
        kv_write_reference(*marked, expected, slots[kept], expected_scales)
        if scales is None or expected_scales is None:
            return _equal_or_nan("the cache", cache, expected)
        is_nan = expected_scales.isnan()
        is_nan[1] = is_nan[0]  # values beside a NaN key are 0
        bits, expected_bits = (t.view(torch.uint8).clone() for t in (cache, expected))
        bits[is_nan], expected_bits[is_nan] = 0, 0
        return [
            *compare_bits("the cache", bits, expected_bits),
            *_equal_or_nan("the scales", scales, expected_scales),
        ]

    return Prepared(launch, differences)


def _marked(keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values in which a head that is not finite has NaN as its key and zeros as its value."""
    is_broken = ~(keys.isfinite().all(-1) & values.isfinite().all(-1))[..., None]
    return keys.masked_fill(is_broken, torch.nan), values.masked_fill(is_broken, 0.0)


def _equal_or_nan(what: str, actual: torch.Tensor, expected: torch.Tensor) -> list[str]:
    a, b = (t.nan_to_num(nan=12345.0) for t in (actual, expected))
    return compare_bits(what, a, b)


KV_WRITE = Kind(
    "kv_write",
    {
        "tokens": (1, 5, 33), "heads": ((1, 64), (2, 80), (8, 128), (3, 256)),
        "block_size": (8, 16), "dtype": (torch.float32, torch.float16, torch.bfloat16),
        "cache": CACHE_TYPES, "padding": PADDINGS,
    },
    _kv_write,
)  # fmt: skip


def rounding_cases() -> list[Case]:
    """Every number of an 8-bit type and the middle between any two: how a cache rounds."""
    return [
        Case("rounding", cache, partial(_rounding, getattr(torch, cache)))
        for cache in CACHE_TYPES[1:]
    ]


def _rounding(cache_dtype: torch.dtype, inputs: Inputs) -> Prepared:
    """The largest number of the dtype in the vector makes the scale 1, so rounding is the only change."""
    numbers = torch.arange(256, dtype=torch.uint8).view(cache_dtype).float()
    numbers = numbers[numbers.isfinite() & (numbers != -128)].sort().values
    middles = (numbers[1:] + numbers[:-1]) / 2
    x = torch.cat((numbers, middles, middles * (1 + 1e-6), middles * (1 - 1e-6)))
    x = torch.cat((x, x.new_zeros(1024 - len(x))))[None, None].to(inputs.device)
    cache = torch.zeros(2, 1, 1, 1, 1024, device=inputs.device).to(cache_dtype)
    scales = torch.zeros(2, 1, 1, 1, device=inputs.device)
    slots = inputs.constant([0], torch.int64)

    def launch() -> None:
        kv_write(x, -x, cache, slots, scales)

    def differences(outputs: None) -> list[str]:
        expected = torch.stack((x, -x))[:, None]
        expected = expected.round() if cache_dtype == torch.int8 else expected
        return [
            *compare("the scales", scales, torch.ones_like(scales), 0.0),
            *compare("the cache", cache.float(), expected.to(cache_dtype).float(), 0.0),
        ]

    return Prepared(launch, differences)


def nan_cases() -> list[Case]:
    """A token that is not a number reaches only the rows that attend to it."""
    return [
        Case("NaN", f"{cache} {options}", partial(_nan, cache, options))
        for cache in CACHE_TYPES
        for options in ({}, {"window": 9}, {"softcap": 2.0})
    ]


def _nan(cache_type: str, options: dict[str, Any], inputs: Inputs) -> Prepared:
    """Token 20 of a chunk of 30 has a NaN key in one of two heads, in a tile with other tokens' keys."""
    dtype = torch.float32 if cache_type == "same" else getattr(torch, cache_type)
    heads = inputs.normal(2, 30, 2, 16)
    query = inputs.normal(30, 4, 16)
    table = inputs.constant([2, 0, 3, 1], torch.int32)[None]
    starts = inputs.constant([0, 30], torch.int32)
    batch = PagedBatch(table, starts, inputs.constant([30], torch.int32), 30, 30)
    offsets = inputs.constant(range(8), torch.int64)
    slots = (table[0].long()[:, None] * 8 + offsets).flatten()[:30].contiguous()

    def attended() -> torch.Tensor:
        cache = torch.zeros(2, 4, 8, 2, 16, device=inputs.device).to(dtype)
        scales = None
        if cache_type != "same":
            scales = torch.zeros(2, 4, 8, 2, device=inputs.device)
        kv_write(heads[0], heads[1], cache, slots, scales)
        return paged_attention(query, cache, batch, 0.3, kv_scales=scales, **options)

    def launch() -> tuple[torch.Tensor, torch.Tensor]:
        expected = attended()
        heads[0, 20, 1, 5] = torch.nan
        return expected, attended()

    return Prepared(launch, partial(_differences_beside_nan, options.get("window", 30)))


def _differences_beside_nan(window: int, outputs: tuple[torch.Tensor, torch.Tensor]) -> list[str]:
    expected, actual = outputs
    sees = slice(20, 20 + window)
    wrong = [] if actual[sees, 2:].isnan().all() else ["a row that attends to a NaN is not NaN"]
    actual[sees, 2:] = expected[sees, 2:]
    return wrong + compare("rows that do not attend to it", actual, expected, 1e-5)
