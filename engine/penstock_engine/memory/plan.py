"""Plans memory: weights, working memory and KV cache within a limit. Imports no torch."""

from contextlib import suppress
from dataclasses import dataclass

from penstock_engine.core.errors import ModelError, Remedies
from penstock_engine.layers.gather_sizes import GATHERED_AT_ONCE_BYTES
from penstock_engine.machine.device import DeviceMemory, choose_dtype
from penstock_engine.memory.batch_limits import BatchLimits, candidates
from penstock_engine.memory.budget import MIB, MemoryBudget
from penstock_engine.memory.drafts import check_draft
from penstock_engine.memory.model_files import (
    check_model,
    check_order,
)
from penstock_engine.memory.number_types import DTYPE_BYTES, KV_DTYPES, KV_SCALE_BYTES
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import make_shards, unsharded
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.flag_values import FIT

# Smallest --max-model-len.
MIN_MODEL_LEN = 16
# Upper bounds on the KV cache in memory that other programs use too, unless the user sets a size.
MAX_SHARED_KV_BYTES = 4 * 2**30
SHARED_KV_FRACTION = 0.25  # of that memory


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory plan of a model and its draft model."""

    model: ModelConfig
    device: str
    # dtype, kv_dtype: of computation and of the KV cache, by torch's names
    dtype: str
    max_model_len: int
    num_blocks: int
    block_size: int
    # weights_bytes, kv_bytes_per_token: in memory; on the CPU the sum of all ranks, which share one memory,
    # and on cuda those of the rank with most
    weights_bytes: int
    kv_bytes_per_token: int
    num_host_blocks: int  # capacity of the host memory for evicted blocks
    kv_dtype: str
    # The largest sliding window of both models' layers; None: some layer has full attention
    window_tokens: int | None
    # max_num_seqs, max_num_batched_tokens: limits of one step
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def kv_capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    """Memory needs of a model that do not depend on batch limits. Fields as in MemoryPlan, MemoryBudget."""

    model: ModelConfig
    dtype: str
    kv_dtype: str
    max_model_len: int  # before it is fitted to the memory
    weights_bytes: int
    block_bytes: int
    num_host_blocks: int
    window_tokens: int | None
    fixed_bytes: int
    requested_kv_bytes: int | None
    draft: ModelConfig | None  # the draft model or head


def plan_memory(config: EngineConfig, *, device_name: str, memory: DeviceMemory) -> MemoryPlan:
    """Check the model's files and plan its memory.

    device_name: cpu or cuda. memory: on cuda that of one GPU. Batch limits that the user did not set are the
    largest with which the KV cache holds the tokens of a step. Raises ModelError, whose message says what to
    change.
    """
    needs = _needs(config, device_name)
    *larger, smallest = candidates(
        config.max_num_seqs,
        config.max_num_batched_tokens,
        device_name=device_name,
        memory_bytes=memory.total_bytes,
    )
    for limits in larger:
        with suppress(ModelError):
            plan = _plan(config, needs, device_name, memory, limits)
            if plan.kv_capacity_tokens >= limits.max_num_batched_tokens:
                return plan
    return _plan(config, needs, device_name, memory, smallest)


def _needs(config: EngineConfig, device_name: str) -> _Needs:
    """Check the model's files against the settings, and compute its needs. Raises ModelError."""
    dtype = choose_dtype(config.dtype, device_name)
    model, tensor_bytes = check_model(
        config.model_dir, config.quantization, dtype, config.tokenizer_dir
    )
    parts = make_shards(model, config.layout)
    if config.layout.tensor > 1:
        check_order(config.model_dir, model)
    max_model_len = _requested_length(config, model)
    kv_dtype = KV_DTYPES.get(config.kv_cache_dtype, dtype)
    kv_bytes = (DTYPE_BYTES[kv_dtype], 0 if kv_dtype == dtype else KV_SCALE_BYTES)
    rank_weights_bytes = [part.local_size(tensor_bytes) for part in parts]
    rank_block_bytes = [part.kv_block_bytes(config.block_size, *kv_bytes) for part in parts]
    windows = [model.window_tokens]
    draft = None
    if config.draft_model_dir is not None:
        draft, draft_bytes = check_draft(
            config, config.draft_model_dir, dtype, model, max_model_len
        )
        rank_weights_bytes[0] += draft_bytes
        rank_block_bytes[0] += unsharded(draft).kv_block_bytes(config.block_size, *kv_bytes)
        windows.append(draft.window_tokens)
    together = sum if device_name == "cpu" else max
    weights_bytes, block_bytes = together(rank_weights_bytes), together(rank_block_bytes)
    requested_kv_bytes = config.kv_cache_memory_bytes
    if config.num_gpu_blocks_override is not None:
        requested_kv_bytes = config.num_gpu_blocks_override * block_bytes
    num_host_blocks = int((config.kv_offloading_size or 0) * 2**30) // block_bytes
    fixed_bytes = weights_bytes + _adapter_bytes(config, model, device_name, dtype)
    if device_name == "cpu":
        fixed_bytes += num_host_blocks * block_bytes
    return _Needs(
        model=model, dtype=dtype, kv_dtype=kv_dtype, max_model_len=max_model_len,
        weights_bytes=weights_bytes, block_bytes=block_bytes, num_host_blocks=num_host_blocks,
        window_tokens=None if None in windows else max(filter(None, windows)),
        fixed_bytes=fixed_bytes, requested_kv_bytes=requested_kv_bytes, draft=draft,
    )  # fmt: skip


def _requested_length(config: EngineConfig, model: ModelConfig) -> int:
    """Context length in tokens by the settings, else by the model. Raises ModelError."""
    if config.max_model_len in (None, FIT):
        return model.max_model_len
    if config.max_model_len > model.max_model_len:
        raise ModelError(
            "ContextTooLong",
            f"--max-model-len is {config.max_model_len}, but the model was made for "
            f"{model.max_model_len} tokens: set it to at most {model.max_model_len}",
        )
    return config.max_model_len


def _plan(
    config: EngineConfig,
    needs: _Needs,
    device_name: str,
    memory: DeviceMemory,
    limits: BatchLimits,
) -> MemoryPlan:
    """Plan the memory with these limits. Raises ModelError if it is too small."""
    budget = MemoryBudget(
        config=config, model=needs.model, device_name=device_name, memory=memory, limits=limits,
        fixed_bytes=needs.fixed_bytes, requested_kv_bytes=needs.requested_kv_bytes,
        item_bytes=DTYPE_BYTES[needs.dtype], draft=needs.draft,
    )  # fmt: skip
    max_model_len, block_bytes = needs.max_model_len, needs.block_bytes
    if config.max_model_len == FIT:
        max_model_len = min(max_model_len, _fitting_length(budget, max_model_len, block_bytes))
    free_bytes = budget.free_bytes(max_model_len)
    if device_name == "cpu" and config.gpu_memory_utilization is None:
        # Other programs use the same memory.
        cap_bytes = min(MAX_SHARED_KV_BYTES, int(memory.total_bytes * SHARED_KV_FRACTION))
        longest_blocks = -(-max_model_len // config.block_size)
        free_bytes = min(free_bytes, max(cap_bytes, longest_blocks * block_bytes))
    return MemoryPlan(
        model=needs.model,
        device=device_name,
        dtype=needs.dtype,
        max_model_len=max_model_len,
        num_blocks=_num_blocks(budget, max_model_len, block_bytes, free_bytes),
        block_size=config.block_size,
        weights_bytes=needs.weights_bytes,
        kv_bytes_per_token=block_bytes // config.block_size,
        num_host_blocks=needs.num_host_blocks,
        kv_dtype=needs.kv_dtype,
        window_tokens=needs.window_tokens,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
    )


def _fitting_length(budget: MemoryBudget, max_model_len: int, block_bytes: int) -> int:
    """Length in tokens of the longest sequence that the KV cache has room for; at least one block."""
    block_size, requested_kv_bytes = budget.config.block_size, budget.requested_kv_bytes
    if budget.device_name == "cuda":
        num_blocks = (requested_kv_bytes or budget.free_bytes(max_model_len)) // block_bytes
    else:
        # Attention's gather buffer grows with the longest sequence as well.
        free_bytes = budget.free_bytes(block_size) - GATHERED_AT_ONCE_BYTES
        gathered_bytes = block_size * budget.gathered_token_bytes
        num_blocks = max(0, free_bytes) // (block_bytes + gathered_bytes)
        if requested_kv_bytes:
            num_blocks = min(num_blocks, requested_kv_bytes // block_bytes)
    return max(num_blocks, 1) * block_size


def _adapter_bytes(config: EngineConfig, model: ModelConfig, device_name: str, dtype: str) -> int:
    """Bytes of all adapters on this device, for the maximum number of adapters and rank."""
    if not config.enable_lora:
        return 0
    count = config.max_loras
    if device_name == "cpu":
        count = config.max_host_loras * config.layout.num_ranks
    return count * model.num_adapter_parameters(config.max_lora_rank) * DTYPE_BYTES[dtype]


def _num_blocks(budget: MemoryBudget, max_model_len: int, block_bytes: int, free_bytes: int) -> int:
    """Number of blocks of the KV cache. Raises ModelError if a sequence of max_model_len does not fit."""
    block_size, requested_kv_bytes = budget.config.block_size, budget.requested_kv_bytes
    num_blocks = (requested_kv_bytes or free_bytes) // block_bytes
    longest_blocks = -(-max_model_len // block_size)
    if requested_kv_bytes is None:
        # More blocks than max_num_seqs requests of maximum length need would never be used.
        num_blocks = min(num_blocks, longest_blocks * budget.limits.max_num_seqs)
    if num_blocks >= longest_blocks:
        return num_blocks
    fitting = num_blocks * block_size
    kv_bytes = longest_blocks * block_bytes
    remedies: Remedies = {"KVCacheMemory": -(-kv_bytes // MIB)}
    if requested_kv_bytes is None:
        remedies = budget.remedies_of_missing(kv_bytes - free_bytes)
    if fitting >= MIN_MODEL_LEN:
        remedies = {**remedies, "ModelLength": fitting}
    raise ModelError(
        "KVCacheTooSmall",
        f"the KV cache has room for {fitting} tokens, but one request may have {max_model_len}",
        remedies,
    )
