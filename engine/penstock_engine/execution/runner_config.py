"""Configuration of the runner."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock_engine.models.shard import ONE_RANK, Layout
from penstock_engine.quantization.rounding import Quantization


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """The model to load, and the limits of its steps and caches."""

    model_dir: Path
    device: str  # cpu or cuda
    dtype: str  # float32, bfloat16 or float16
    # num_blocks, num_host_blocks: number of KV blocks of block_size tokens on the device and in host memory
    num_blocks: int
    block_size: int
    # max_num_seqs, max_num_batched_tokens, max_adapters: limits of one step
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int  # limit of a sequence's length
    quantization: Quantization | None = None  # of weights while loading; None: as in the checkpoint
    kv_dtype: str | None = None  # int8 or float8_e4m3fn; None: dtype
    num_host_blocks: int = 0
    max_adapters: int = 0
    max_lora_rank: int = 16  # of an adapter
    # Directory of a draft model or draft head, according to draft_method; only rank 0 loads it
    draft_model_dir: Path | None = None
    draft_method: Literal["draft_model", "eagle"] = "draft_model"
    layout: Layout = ONE_RANK
    async_scheduling: bool = True  # launch steps ahead if the device allows it
    enforce_eager: bool = False  # do not record CUDA graphs
