"""Paged attention: its share of the memory bandwidth, and its FLOP/s with prompts, beside torch's attention.

Times are of replayed CUDA graphs of many launches over different pages, so that neither launches nor the
device's cache count. Nor does the plan of splits, which a step makes once for all layers.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from benchmarks.gpu.attention_sweep import compile_tiles, sweep
from benchmarks.gpu.child import reason_of
from benchmarks.gpu.context import Context, Item, Record
from benchmarks.gpu.meters.device_memory import total_bytes
from benchmarks.gpu.meters.peak import flop_rates
from benchmarks.gpu.timing import check_device, seconds_per_launch
from benchmarks.gpu.workloads.attention_inputs import (
    BLOCK_SIZE,
    LARGE,
    SMALL,
    Case,
    Heads,
    PoolStore,
    make_inputs,
    relative_error,
)
from benchmarks.gpu.workloads.attention_launches import (
    MIN_LAUNCHES,
    attend,
    max_copies,
    seconds_of,
)
from benchmarks.gpu.workloads.torch_attention import BACKENDS, torch_attention

BATCHES = (32, 128, 64, 256, 8, 1)
CONTEXTS = (2048, 8192, 512, 32_768)
MAX_KV_BYTES = 36 * 2**30  # of a case; 256 sequences of 32,768 tokens have 32 GiB
MEMORY_SHARE = 0.3  # of the device's memory, for the KV cache of a case
POOL_BYTES_8_BITS = 4 * 2**30  # before rounding, which takes four times as much for a moment
MAX_ERROR = 0.02  # of bfloat16 results against float32, relative to the result of a sequence

# Cases for which many tiles are tried.
SWEPT = (
    "decode 32 x 2048", "decode 128 x 2048", "decode 32 x 8192", "decode 8 x 32768",
    "prompt 1 x 8192", "decode 2 x 40",
)  # fmt: skip


def decode_cases() -> list[Case]:
    """Cases of one new token, the ones with a bar first."""
    cases = [
        Case(f"decode {batch} x {context}", (context,) * batch)
        for batch in BATCHES
        for context in CONTEXTS
    ]
    cases.sort(key=lambda case: len(case.lengths) < 32 or case.lengths[0] < 2048)
    uneven = [
        Case("decode 1 x 32768 + 31 x 512", (512,) * 31 + (32_768,)),
        Case("decode 1 x 32768 + 127 x 1024", (1024,) * 127 + (32_768,)),
    ]
    rounded = [
        Case(f"decode {batch} x {context}, {cache}", (context,) * batch, cache=cache)
        for cache in ("int8", "float8_e4m3fn")
        for batch, context in ((32, 2048), (64, 8192))
    ]
    return [*cases, *uneven, *rounded]


def prompt_cases() -> list[Case]:
    return [
        Case("prompt 1 x 8192", (8192,), 8192),
        Case("prompt 1 x 2048", (2048,), 2048),
        Case("prompt 4 x 2048", (2048,) * 4, 2048),
        Case("prompt 1 x 2048 after 6144", (8192,), 2048),
    ]


SMALL_CASES = [
    Case("decode 2 x 40", (40, 40)),
    Case("decode 1 x 70 + 2 x 5", (5, 5, 70)),
    Case("decode 2 x 20, int8", (20, 20), cache="int8"),
    Case("prompt 1 x 24", (24,), 24),
    Case("prompt 2 x 8 after 8", (16, 16), 8),
]


def items(context: Context) -> Iterator[Item]:
    """Decode and prompts with the engine's choice of tiles, with others, and with torch's attention."""
    heads = SMALL if context.is_small else LARGE
    most_bytes = min(MAX_KV_BYTES, MEMORY_SHARE * total_bytes(context))
    cases = [*decode_cases(), *prompt_cases()]
    cases = [case for case in cases if case.kv_bytes(heads) <= most_bytes]
    if context.is_small:
        cases = SMALL_CASES
    swept = [case for case in cases if case.name in SWEPT]
    store = PoolStore(pool_blocks(cases, heads, most_bytes), heads, context.device)
    yield Item("compile ahead", partial(compile_tiles, cases, swept, heads, context))
    for case in cases:
        yield Item(case.name, partial(measure, case, heads, store, context))
    for case in swept:
        yield Item(f"{case.name}, tiles", partial(sweep, case, heads, store, context))
    for case in cases:
        if is_possible_in_torch(case):
            for backend in BACKENDS[:1] if context.is_small else BACKENDS:
                run = partial(measure_torch, case, heads, store, context, backend)
                yield Item(f"{case.name}, torch {backend}", run)


def is_possible_in_torch(case: Case) -> bool:
    """Whether all sequences are alike, and either decode a token or compute their whole prompt."""
    is_whole = case.num_queries in (1, case.lengths[0])
    return case.cache == "same" and len({*case.lengths}) == 1 and is_whole


def pool_blocks(cases: Sequence[Case], heads: Heads, most_bytes: float) -> dict[str, int]:
    """Number of blocks of the pool of each kind of cache: enough for its largest case."""
    block_bytes = 2 * 2 * BLOCK_SIZE * heads.num_kv_heads * heads.head_dim
    blocks: dict[str, int] = {}
    for case in cases:
        bytes_wanted = most_bytes if case.cache == "same" else min(most_bytes, POOL_BYTES_8_BITS)
        num_blocks = max(case.num_blocks, int(bytes_wanted / block_bytes))
        blocks[case.cache] = max(num_blocks, blocks.get(case.cache, 0))
    return blocks


@torch.inference_mode()
def measure(case: Case, heads: Heads, store: PoolStore, context: Context) -> Record:
    """Time of a launch with the engine's choice of tile, and the figures of `rates`.

    batch, context: of decodes of equal length over a cache in bfloat16, to which the bar applies.
    """
    inputs = make_inputs(case, heads, store.get(case.cache), max_copies=max_copies(context))
    error = relative_error(attend(inputs, 0), inputs, inputs.batches[0])
    seconds = seconds_of(inputs, None, context)
    figures = rates(case, heads, seconds, context)
    figures |= {"ok": error < MAX_ERROR, "relative_error": error}
    if len({*case.lengths}) == 1 and case.num_queries == 1 and case.cache == "same":
        figures |= {"batch": len(case.lengths), "context": case.lengths[0]}
    return figures


@torch.inference_mode()
def measure_torch(
    case: Case, heads: Heads, store: PoolStore, context: Context, backend: str
) -> Record:
    """Time of torch's attention over keys and values of equal size that lie one after another."""
    pool = store.get(case.cache)
    works = torch_attention(case, heads, pool, backend, max_copies(context))
    least = 1 if context.is_small else MIN_LAUNCHES
    timed = (works * MIN_LAUNCHES)[: max(len(works), least)]
    try:
        works[0]()
        check_device(context.device)
        seconds = seconds_per_launch(timed, context.device)
    # A backend need not have a kernel for every case, and not every kernel can be recorded.
    except RuntimeError as error:
        check_device(context.device)
        return {"not_supported": reason_of(error)}
    return rates(case, heads, seconds, context)


def rates(case: Case, heads: Heads, seconds: float, context: Context) -> Record:
    """Bandwidth of a decode, as a share of a copy's; FLOP/s of prompts, as shares of a product's and of
    the device's peak."""
    machine = context.machine
    if case.num_queries == 1:
        num_bytes = case.moved_bytes(heads)
        figures: Record = {"kernel_s": seconds, "moved_bytes": num_bytes}
        if bandwidth := machine.get("copy_bytes_per_s"):
            figures["bandwidth_share"] = num_bytes / seconds / float(bandwidth)
        return figures
    return {"kernel_s": seconds, **flop_rates(case.flops(heads), seconds, machine)}
