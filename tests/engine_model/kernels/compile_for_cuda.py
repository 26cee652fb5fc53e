"""Compiles every kernel, as its own wrapper launches it, to machine code for three GPU generations.

    python -m tests.engine_model.kernels.compile_for_cuda

That none is left out is checked at the end. It needs Triton but no GPU: the interpreter accepts things
that the compiler does not. Run in a process of its own, by test_kernels.py. It prints what each launch takes
of the machine, and checks the limits below.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

torch.cuda.is_available = lambda: True  # so that the kernels are handed to Triton

import triton.backends.nvidia  # noqa: E402
from tests.support.engine.named_device import (  # noqa: E402
    NamedDevice,
    all_kernels,
    launching_for,
)

from penstock_engine.kernels import paged_attention  # noqa: E402
from penstock_engine.kernels.adjust_logits import Penalties, adjust_logits  # noqa: E402
from penstock_engine.kernels.attention_sizes import MIN_DOT  # noqa: E402
from penstock_engine.kernels.fused_add_norm import fused_add_norm  # noqa: E402
from penstock_engine.kernels.group_rows import group_rows  # noqa: E402
from penstock_engine.kernels.grouped_linear import choose_block_rows, grouped_linear  # noqa: E402
from penstock_engine.kernels.gumbel_argmax import gumbel_argmax  # noqa: E402
from penstock_engine.kernels.int4_linear import int4_linear  # noqa: E402
from penstock_engine.kernels.int8_linear import int8_linear  # noqa: E402
from penstock_engine.kernels.kv_write import kv_write  # noqa: E402
from penstock_engine.kernels.moe import moe  # noqa: E402
from penstock_engine.kernels.operations import operations  # noqa: E402
from penstock_engine.kernels.paged_batch import PagedBatch  # noqa: E402
from penstock_engine.kernels.rope import rope  # noqa: E402
from penstock_engine.kernels.runtime import ASSUMED_MULTIPROCESSORS  # noqa: E402
from penstock_engine.kernels.silu_mul import gelu_tanh_mul, silu_mul  # noqa: E402

# Shared memory that a program may have: on the smallest devices for which code for sm_80 is compiled, and on
# those of sm_90 and sm_100.
SHARED_KIB = {80: 99, 90: 227, 100: 227}
# Spilled registers, of values that are used once; in float32 with a float8 cache, which no default has, more.
MAX_STACK_BYTES, MAX_STACK_BYTES_FLOAT32 = 16, 192
# Shared memory of a multiprocessor, and the programs that it has to hold while single tokens are computed:
# one computes while the others wait for memory.
MULTIPROCESSOR_KIB = {80: 164, 90: 228, 100: 228}
DECODE_PROGRAMS = {80: 2, 90: 3, 100: 3}
compiled_kernels: set[str] = set()
CUOBJDUMP = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"


def compile_and_check(capability: int, kernel: Any, grid: object) -> Callable[..., None]:
    def launch(*args: object, **kwargs: object) -> None:
        compiled = kernel.run(*args, grid=grid, warmup=True, **kwargs)
        shared = compiled.metadata.shared
        registers, stack_bytes = resources(compiled.asm["cubin"])
        print(
            f"sm_{capability} {kernel.__name__:22} shared {shared:6} bytes, {registers:3}"
            f" registers, stack {stack_bytes:3} bytes", flush=True,
        )  # fmt: skip
        assert shared <= SHARED_KIB[capability] * 1024
        is_full = args[0] is not None and args[0].dtype == torch.float32
        assert stack_bytes <= (MAX_STACK_BYTES_FLOAT32 if is_full else MAX_STACK_BYTES)
        if kernel.__name__ == "_attend_kernel":
            assert loads_in_flight(compiled.asm["ttgir"]) >= 2 * (kwargs["num_stages"] - 2)
            if kwargs["BLOCK_ROWS"] == MIN_DOT and not is_full:
                num_threads = 32 * kwargs["num_warps"]
                resident = num_resident(capability, registers, num_threads, shared)
                assert resident >= DECODE_PROGRAMS[capability]
        compiled_kernels.add(kernel.__name__)

    return launch


def loads_in_flight(ttgir: str) -> int:
    """The asynchronous loads that the first loop leaves in flight, when it waits for others."""
    loop = ttgir[ttgir.index("scf.for") :]
    return min(
        map(int, re.findall(r"ttg.async_wait.* {num = (\d+)", loop[: loop.index("scf.yield")]))
    )


def num_resident(capability: int, registers: int, num_threads: int, shared_bytes: int) -> int:
    """Programs that a multiprocessor of 65,536 registers holds at a time; each takes 1 KiB more."""
    shared_kib = MULTIPROCESSOR_KIB[capability] * 1024 // (shared_bytes + 1024)
    return min(shared_kib, 65_536 // (-(-registers // 8) * 8 * num_threads))


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of its stack, where registers are spilled."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found is not None
    return int(found[1]), int(found[2])


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def integers(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def attention(
    dtype: torch.dtype, cache_dtype: torch.dtype, *, group: int = 4, head_dim: int = 128,
    max_queries: int = 1, window: int = 0, softcap: float = 0.0, batch: int = 4,
) -> None:  # fmt: skip
    """Write, and attend by one token or by max_queries tokens of each sequence."""
    print(f"attention {dtype} {cache_dtype} {group=} {head_dim=} {max_queries=}")
    num_tokens = batch * max_queries
    keys = empty(num_tokens, 8, head_dim, dtype=dtype)
    query = empty(num_tokens, 8 * group, head_dim, dtype=dtype)
    cache = empty(2, 9, 16, 8, head_dim, dtype=cache_dtype)
    scales = None if cache_dtype == dtype else empty(2, 9, 16, 8, dtype=torch.float32)
    kv_write(keys, keys, cache, torch.zeros(num_tokens, dtype=torch.int64), scales)
    options = {"window": window, "softcap": softcap, "kv_scales": scales}
    starts = None if max_queries == 1 else integers(batch + 1)
    paged = PagedBatch(integers(batch, 16), starts, integers(batch), max_queries, 1000)
    paged_attention.paged_attention(query, cache, paged, 0.1, **options)


def row_kernels(dtype: torch.dtype) -> None:
    x = empty(3, 3072, dtype=dtype)
    fused_add_norm(x, empty(3, 3072, dtype=dtype), x[0], 1e-6)
    fused_add_norm(x.view(3, 24, 128), None, x[0, :128], 1e-6, weight_offset=1.0)
    table = empty(3, 64, dtype=torch.float32)
    rope(x.view(3, 24, 128), x.view(3, 24, 128)[:, :8], table, table)
    angles = empty(3, 1, 128, dtype=dtype)
    operations("cuda").rotate(x.view(3, 24, 128), x.view(3, 24, 128)[:, :8], angles, angles)
    silu_mul(x)
    gelu_tanh_mul(x)


def sampling() -> None:
    logits, ones = empty(3, 1000, dtype=torch.float32), empty(3, dtype=torch.float32)
    slots, flags = torch.zeros(3, dtype=torch.int64), torch.zeros(3, 1000, dtype=torch.bool)
    adjust_logits(logits, ones, ones)
    penalties = Penalties(ones, ones, ones, integers(3, 1000), flags, slots)
    adjust_logits(logits, ones, ones, penalties=penalties, allowed=integers(3, 32))
    gumbel_argmax(logits, flags[:, 0].contiguous(), slots, slots)


def products(dtype: torch.dtype, num_rows: int) -> None:
    x = empty(num_rows, 2048, dtype=dtype)
    codes, scales = empty(300, 2048, dtype=torch.int8), empty(300, 16, dtype=dtype)
    int8_linear(x, codes, scales[:, :1].contiguous(), 2048)
    int8_linear(
        x, codes.view(torch.float8_e4m3fn), scales[:, :1].contiguous(), 2048, factor=1 / 256
    )
    int8_linear(x, codes, scales, 128, zeros=scales.to(torch.int16))
    packed = empty(5, 2048, 32, dtype=torch.uint8)
    int4_linear(x, packed, empty(16, 320, 2, dtype=dtype), 300)
    experts = integers(num_rows, 2)
    gate_up, down = empty(8, 1000, 2048, dtype=dtype), empty(8, 2048, 500, dtype=dtype)
    moe(x, gate_up, down, experts, x[:, :2], silu_mul)
    tokens = group_rows(experts[:, 0].contiguous(), 4, choose_block_rows(num_rows, 4))
    shrunk = grouped_linear(x, empty(4, 16, 2048, dtype=dtype), tokens, out_dtype=torch.float32)
    grouped_linear(shrunk, empty(4, 300, 16, dtype=dtype), tokens, out=x[:, :300])


def compile_all() -> None:
    half, full = torch.bfloat16, torch.float32
    sampling()
    row_kernels(half)
    row_kernels(full)
    products(half, 1)
    products(half, 300)
    products(full, 300)
    attention(half, half)
    attention(half, half, max_queries=5)
    attention(half, half, max_queries=512, head_dim=80)
    attention(half, half, max_queries=64, head_dim=256, window=100, softcap=30.0)
    attention(half, torch.int8)
    attention(half, torch.float8_e4m3fn, max_queries=512)
    attention(full, full, group=1, head_dim=256)
    attention(full, torch.float8_e4m3fn, max_queries=8)


for capability, shared_kib in SHARED_KIB.items():
    device = NamedDevice(capability, ASSUMED_MULTIPROCESSORS, shared_kib)
    with launching_for(device, partial(compile_and_check, capability)):
        compile_all()
assert compiled_kernels == all_kernels()
print("compiled")
