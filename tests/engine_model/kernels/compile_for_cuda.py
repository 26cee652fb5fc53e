"""Compiles every kernel to machine code for two GPU generations; needs Triton but no GPU.

The interpreter accepts things that the compiler does not. Run in a process of its own, by
test_kernels.py.
"""

import torch

torch.cuda.is_available = lambda: True  # so that the kernels are handed to Triton

from triton import compile as compile_kernel  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from penstock_engine.kernels import kv_write, paged_decode  # noqa: E402

SPLIT_TYPES = {
    "block_tables": "*i32", "lengths": "*i32", "partial": "*fp32", "maxima": "*fp32",
    "sums": "*fp32", "scale": "fp32", "query_stride": "i32", "table_stride": "i32",
}  # fmt: skip


def compile_for(capability: int, kernel, types: dict[str, str], constants: dict[str, int]) -> None:
    signature = types | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = compile_kernel(source, target=GPUTarget("cuda", capability, 32))
    assert compiled.asm["cubin"]


for capability in (80, 90):
    for dtype in ("*fp32", "*bf16"):
        rows = dict.fromkeys(("keys", "values", "key_pool", "value_pool"), dtype)
        compile_for(
            capability,
            kv_write._kernel,
            rows | {"slots": "*i64", "key_stride": "i32", "value_stride": "i32"},
            {"ROW_SIZE": 1024, "ROW_PAD": 1024},
        )
        for head_dim, head_pad in ((64, 64), (80, 128)):
            sizes = {"HEAD_DIM": head_dim, "HEAD_PAD": head_pad, "NUM_SPLITS": 8}
            compile_for(
                capability,
                paged_decode._split_kernel,
                dict.fromkeys(("query", "key_pool", "value_pool"), dtype) | SPLIT_TYPES,
                sizes
                | {"NUM_KV_HEADS": 8, "GROUP": 3, "GROUP_PAD": 16, "BLOCK_SIZE": 16, "TILE": 32},
            )
            compile_for(
                capability,
                paged_decode._reduce_kernel,
                dict.fromkeys(("partial", "maxima", "sums"), "*fp32") | {"output": dtype},
                sizes | {"NUM_HEADS": 24},
            )
print("compiled")
