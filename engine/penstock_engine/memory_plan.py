"""Plans memory: weights, working memory and KV cache within a limit. Imports no torch."""

from dataclasses import dataclass
from pathlib import Path

from penstock_engine import device
from penstock_engine.checkpoint import check_model, safetensors_files
from penstock_engine.config import EngineConfig
from penstock_engine.core.errors import ModelError
from penstock_engine.flag_values import FIT
from penstock_engine.graph_sizes import graph_bytes, most_rows
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import make_shards
from penstock_engine.quantization.scheme import Header
from penstock_engine.weights import read_headers, shapes_and_bytes

MIB = 2**20

# Memory of interpreter, torch and server: 590 MiB were measured at the start and 620 MiB under load with
# the CUDA build of torch, 255 MiB of them mapped files.
PROGRAM_BYTES = 640 * MIB

# Memory of each additional rank: 286 MiB were measured at the start, in addition to 243 MiB of mapped files
# that it shares with rank 0.
WORKER_BYTES = 320 * MIB

# A KV cache smaller than this is not worth starting with.
MIN_KV_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory plan of a model and its draft model.

    dtype, kv_dtype: of computation and of the KV cache, by torch's names. num_host_blocks: capacity of
    host memory for evicted blocks. window_tokens: the largest sliding window of both models' layers;
    None: some layer has full attention. weights_bytes, kv_bytes_per_token: in memory; on the CPU the
    sum of all ranks, which share one memory, and on cuda those of the rank with most.
    """

    model: ModelConfig
    device: str
    dtype: str
    max_model_len: int
    num_blocks: int
    block_size: int
    weights_bytes: int
    kv_bytes_per_token: int
    num_host_blocks: int
    kv_dtype: str
    window_tokens: int | None

    @property
    def kv_capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size


def plan_memory(config: EngineConfig, *, device_name: str, memory_limit_bytes: int) -> MemoryPlan:
    """Check the model's files and plan its memory within the limit.

    device_name: cpu or cuda; on cuda the limit is the device's memory, and memory_limit_bytes is
    ignored. Raises ModelError, whose message says what to change.
    """
    dtype = device.choose_dtype(config.dtype, device_name)
    model, tensor_bytes = check_model(
        config.model_dir, config.quantization, dtype, config.tokenizer_dir
    )
    parts = make_shards(model, config.layout)
    item_bytes = device.DTYPE_BYTES[dtype]
    is_fitted = config.max_model_len == FIT
    max_model_len = (
        model.max_model_len if is_fitted else config.max_model_len or model.max_model_len
    )
    if max_model_len > model.max_model_len:
        raise ModelError(
            "ContextTooLong",
            f"spec.engine.maxModelLen is {max_model_len}, but the model was made for "
            f"{model.max_model_len} tokens: set it to at most {model.max_model_len}",
        )
    kv_dtype = device.KV_DTYPES.get(config.kv_cache_dtype, dtype)
    kv_bytes = (device.DTYPE_BYTES[kv_dtype], 0 if kv_dtype == dtype else device.KV_SCALE_BYTES)
    rank_weights_bytes = [part.local_size(tensor_bytes) for part in parts]
    rank_per_token = [part.kv_bytes_per_token(*kv_bytes) for part in parts]
    windows = [model.window_tokens]
    if config.draft_model_dir is not None:
        draft, draft_bytes = _draft(config, config.draft_model_dir, dtype, model, max_model_len)
        rank_weights_bytes[0] += draft_bytes
        rank_per_token[0] += draft.kv_bytes_per_token(*kv_bytes)
        windows.append(draft.window_tokens)
    together = sum if device_name == "cpu" else max
    weights_bytes, per_token = together(rank_weights_bytes), together(rank_per_token)
    wanted_bytes = config.kv_cache_memory_bytes
    if config.num_gpu_blocks_override is not None:
        wanted_bytes = config.num_gpu_blocks_override * config.block_size * per_token
    num_host_blocks = int((config.kv_offloading_size or 0) * 2**30) // (
        per_token * config.block_size
    )
    fixed_bytes = weights_bytes + _adapter_bytes(config, model, device_name, item_bytes)
    if device_name == "cpu":
        fixed_bytes += num_host_blocks * config.block_size * per_token

    def free_bytes_of(length: int) -> int:
        return _free_bytes(
            config, model, device_name, memory_limit_bytes, fixed_bytes, wanted_bytes, length,
            item_bytes,
        )  # fmt: skip

    if is_fitted and device_name == "cuda":
        fitting = (wanted_bytes or free_bytes_of(max_model_len)) // per_token
    elif is_fitted:
        # Attention's gather buffer grows with the longest sequence as well.
        gathered_bytes = _gathered_token_bytes(model, item_bytes)
        free_bytes = free_bytes_of(config.block_size) - device.GATHERED_AT_ONCE_BYTES
        fitting = max(0, free_bytes) // (per_token + gathered_bytes)
        fitting = min(fitting, wanted_bytes // per_token) if wanted_bytes else fitting
    if is_fitted:
        fitting = fitting // config.block_size * config.block_size
        max_model_len = min(max_model_len, max(fitting, config.block_size))
    free_bytes = free_bytes_of(max_model_len)
    if _shares_memory(config, device_name):
        cap_bytes = device.shared_kv_bytes(memory_limit_bytes)
        longest_blocks = -(-max_model_len // config.block_size)
        free_bytes = min(free_bytes, max(cap_bytes, longest_blocks * config.block_size * per_token))
    num_blocks = _num_blocks(config, max_model_len, per_token, free_bytes, wanted_bytes)
    return MemoryPlan(
        model, device_name, dtype, max_model_len, num_blocks, config.block_size, weights_bytes,
        per_token, num_host_blocks, kv_dtype,
        None if None in windows else max(filter(None, windows)),
    )  # fmt: skip


def _shares_memory(config: EngineConfig, device_name: str) -> bool:
    """Whether other programs use the same memory and --gpu-memory-utilization is not set."""
    is_told = config.gpu_memory_utilization is not None
    return device_name == "cpu" and config.device != "cuda" and not is_told


def _gathered_token_bytes(model: ModelConfig, item_bytes: int) -> int:
    """Bytes of one token's keys and values in one layer, in the model's number type."""
    return 2 * model.num_kv_heads * model.head_dim * item_bytes


def _adapter_bytes(
    config: EngineConfig, model: ModelConfig, device_name: str, item_bytes: int
) -> int:
    """Bytes of all adapters on this device, for the maximum number of adapters and rank."""
    if not config.enable_lora:
        return 0
    count = config.max_loras
    if device_name == "cpu":
        count = config.max_host_loras * config.layout.num_ranks
    return count * model.num_adapter_parameters(config.max_lora_rank) * item_bytes


def _draft(
    config: EngineConfig, draft_dir: Path, dtype: str, model: ModelConfig, max_model_len: int
) -> tuple[ModelConfig, int]:
    """Configuration of the draft model or head, and the bytes of its weights. Raises ModelError."""
    if config.has_draft_head:
        return _draft_head(config, draft_dir, dtype, model)
    draft, tensor_bytes = check_model(draft_dir, dtype=dtype)
    if draft.vocab_size != model.vocab_size:
        raise ModelError(
            "DraftMismatch",
            f"the draft model has {draft.vocab_size} tokens, the model {model.vocab_size}: "
            f"take a draft model with the same tokenizer",
        )
    if draft.max_model_len < max_model_len:
        raise ModelError(
            "DraftMismatch",
            f"the draft model was made for {draft.max_model_len} tokens: set max_model_len to at "
            f"most that",
        )
    return draft, sum(tensor_bytes.values())


def _draft_head(
    config: EngineConfig, head_dir: Path, dtype: str, model: ModelConfig
) -> tuple[ModelConfig, int]:
    """Configuration of a draft head and the bytes of its weights. Raises ModelError.

    A head has neither an embedding nor an output projection.
    """
    head = ModelConfig.load(head_dir)
    headers: dict[str, Header] = {}
    for path in safetensors_files(head_dir):
        headers |= read_headers(path)
    shapes, tensor_bytes = shapes_and_bytes(headers, None, device.DTYPE_BYTES[dtype])
    if config.layout.num_ranks > 1:
        raise ModelError("DraftMismatch", "a head drafts only for a model that is on one rank")
    if head.hidden_size != model.hidden_size:
        raise ModelError(
            "DraftMismatch",
            f"the head was made for states of {head.hidden_size} numbers, the model's have "
            f"{model.hidden_size}: take a head of this model",
        )
    if shapes.get("fc.weight") != (head.hidden_size, 2 * head.hidden_size):
        raise ModelError(
            "DraftMismatch", "the head has no fc.weight that reads a token and a state"
        )
    own = {name: size for name, size in tensor_bytes.items() if name.startswith(("fc.", "layers."))}
    return head, sum(own.values())


def _num_blocks(
    config: EngineConfig,
    max_model_len: int,
    kv_bytes_per_token: int,
    free_bytes: int,
    wanted_bytes: int | None,
) -> int:
    num_blocks = (wanted_bytes or free_bytes) // (kv_bytes_per_token * config.block_size)
    longest_blocks = -(-max_model_len // config.block_size)
    if wanted_bytes is None:
        # More blocks than max_num_seqs requests of maximum length need would never be used.
        num_blocks = min(num_blocks, longest_blocks * config.max_num_seqs)
    if num_blocks >= longest_blocks:
        return num_blocks
    fitting = num_blocks * config.block_size
    kv_bytes = longest_blocks * config.block_size * kv_bytes_per_token
    if wanted_bytes is not None:
        advice = f"set spec.engine.kvCache.memory to at least {-(-kv_bytes // MIB)}Mi"
    else:
        missing_bytes = int((kv_bytes - free_bytes) / config.memory_utilization)
        advice = f"give spec.resources.limits.memory at least {-(-missing_bytes // MIB)}Mi more"
    raise ModelError(
        "KVCacheTooSmall",
        f"the KV cache has room for {fitting} tokens, but one request may have {max_model_len}: "
        f"{advice}, or set spec.engine.maxModelLen to at most {fitting}",
    )


def _free_bytes(
    config: EngineConfig,
    model: ModelConfig,
    device_name: str,
    memory_limit_bytes: int,
    weights_bytes: int,
    wanted_bytes: int | None,
    max_model_len: int,
    item_bytes: int,
) -> int:
    """Bytes that are left for the KV cache. Raises ModelError if they are fewer than wanted_bytes."""
    base_bytes = device.activation_bytes(
        num_tokens=config.max_num_batched_tokens,
        hidden_size=model.hidden_size,
        intermediate_size=model.widest_intermediate_size,
    )
    sampling_bytes = device.sampling_bytes(
        max_num_seqs=config.max_num_seqs,
        rows_per_sequence=1 + config.num_drafts,
        vocab_size=model.vocab_size,
        item_bytes=item_bytes,
        device=device_name,
        max_logprobs=config.max_reported_logprobs(model.vocab_size),
        max_num_batched_tokens=config.max_num_batched_tokens,
    )
    num_ranks = config.layout.num_ranks
    if device_name == "cuda" and num_ranks == 1 and not config.enforce_eager:
        base_bytes += _graph_bytes(config, model, max_model_len, item_bytes)
    program_bytes = 0
    if device_name == "cpu":
        program_bytes = PROGRAM_BYTES + (num_ranks - 1) * WORKER_BYTES
        base_bytes = num_ranks * base_bytes + program_bytes
        base_bytes += device.gathered_bytes(
            max_num_seqs=config.max_num_seqs,
            num_visible_tokens=min(max_model_len, model.window_tokens or max_model_len),
            token_bytes=_gathered_token_bytes(model, item_bytes),
        )
    base_bytes += sampling_bytes
    free_bytes = device.kv_memory_bytes(
        device_name,
        memory_limit_bytes=memory_limit_bytes,
        utilization=config.memory_utilization,
        weights_bytes=weights_bytes,
        base_bytes=base_bytes,
        num_devices=num_ranks,
    )
    if free_bytes >= (wanted_bytes or MIN_KV_BYTES):
        return free_bytes
    kv_bytes = wanted_bytes or MIN_KV_BYTES
    needed_bytes = int((weights_bytes + base_bytes + kv_bytes) / config.memory_utilization)
    raise ModelError(
        "MemoryTooSmall",
        f"{-(-weights_bytes // MIB)} MiB of weights, {program_bytes // MIB} MiB for the program, "
        f"{(base_bytes - program_bytes) // MIB} MiB of working memory and "
        f"{-(-kv_bytes // MIB)} MiB of KV cache do not fit into {config.memory_utilization:.0%} "
        f"of {memory_limit_bytes // MIB} MiB: set spec.resources.limits.memory to at least "
        f"{-(-needed_bytes // MIB)}Mi",
    )


def _graph_bytes(
    config: EngineConfig, model: ModelConfig, max_model_len: int, item_bytes: int
) -> int:
    """Memory of recorded decode steps, in bytes. Only a model on one rank has them."""
    activation_bytes = device.activation_bytes(
        num_tokens=most_rows(config.max_num_seqs),
        hidden_size=model.hidden_size,
        intermediate_size=model.widest_intermediate_size,
    )
    return graph_bytes(
        max_num_seqs=config.max_num_seqs,
        max_model_len=max_model_len,
        block_size=config.block_size,
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        item_bytes=item_bytes,
        activation_bytes=activation_bytes,
    )
