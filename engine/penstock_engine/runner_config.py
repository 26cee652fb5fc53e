"""What a runner loads, and how much room it has."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock_engine.models.shard import ONE_RANK, Layout
from penstock_engine.quantization.rounding import Quantization


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """device: cpu or cuda. dtype: float32, bfloat16 or float16.

    num_blocks, num_host_blocks: of block_size tokens, on the device and beside it. max_num_seqs,
    max_num_batched_tokens, max_adapters: of one step. max_model_len: tokens of a sequence.
    quantization: None: weights are held as they are. kv_dtype: int8, float8_e4m3fn, or None for
    dtype. draft_model_dir: of a model that drafts, or of a head, as draft_method says; it is held
    as it is, by rank 0 alone. async_scheduling: where the device allows it, steps are launched
    before the one before them is waited for. enforce_eager: no step is recorded as a graph.
    """

    model_dir: Path
    device: str
    dtype: str
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    quantization: Quantization | None = None
    kv_dtype: str | None = None
    num_host_blocks: int = 0
    max_adapters: int = 0
    draft_model_dir: Path | None = None
    draft_method: Literal["draft_model", "eagle"] = "draft_model"
    layout: Layout = ONE_RANK
    async_scheduling: bool = True
    enforce_eager: bool = False
