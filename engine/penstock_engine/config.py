"""What one engine is told, and what follows from it for memory. Shared by serve and preflight."""

from dataclasses import dataclass
from pathlib import Path

from penstock_engine import device
from penstock_engine.core.errors import ModelError
from penstock_engine.models.config import ModelConfig
from penstock_engine.weights import num_parameters

# Interpreter, torch and server, measured at 506 MiB after `import torch` with the CUDA build.
PROGRAM_BYTES = 640 * 2**20

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The flags of `penstock-engine serve` that shape the engine, by vLLM's names."""

    model_dir: Path
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    dtype: str = "auto"
    enable_prefix_caching: bool = True
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class Sizing:
    """How a model fits."""

    model: ModelConfig
    device: str
    dtype: str
    max_model_len: int
    num_blocks: int
    weights_bytes: int
    kv_bytes_per_token: int


def size(config: EngineConfig, *, device_name: str, memory_limit_bytes: int) -> Sizing:
    """Weights + working memory + KV cache within the limit, or a ModelError that says what to change.

    device_name is cpu or cuda. On a GPU its own memory counts, and memory_limit_bytes does not.
    """
    model = ModelConfig.load(config.model_dir)
    dtype = device.choose_dtype(config.dtype, device_name)
    item_bytes = device.DTYPE_BYTES[dtype]
    max_model_len = config.max_model_len or model.max_model_len
    if max_model_len > model.max_model_len:
        raise ModelError(
            "ContextTooLong",
            f"spec.engine.maxModelLen is {max_model_len}, but the model was made for "
            f"{model.max_model_len} tokens: lower it to {model.max_model_len}",
        )
    weights_bytes = num_parameters(config.model_dir) * item_bytes
    per_token = model.kv_bytes_per_token(item_bytes)
    kv_bytes = _kv_bytes(config, model, device_name, memory_limit_bytes, weights_bytes)
    num_blocks = config.num_gpu_blocks_override or max(0, kv_bytes) // (
        per_token * config.block_size
    )
    # More than every request at its longest can use is memory for nothing.
    longest_blocks = -(-max_model_len // config.block_size)
    if config.kv_cache_memory_bytes is None and config.num_gpu_blocks_override is None:
        num_blocks = min(num_blocks, longest_blocks * config.max_num_seqs)
    if num_blocks < longest_blocks:
        fitting = num_blocks * config.block_size
        needed_mib = -(-longest_blocks * config.block_size * per_token // MIB)
        raise ModelError(
            "KVCacheTooSmall",
            f"the KV cache has room for {fitting} tokens, but one request may have "
            f"{max_model_len}: set spec.engine.kvCache.memory to at least {needed_mib}Mi, or lower "
            f"spec.engine.maxModelLen",
        )
    return Sizing(model, device_name, dtype, max_model_len, num_blocks, weights_bytes, per_token)


def _kv_bytes(
    config: EngineConfig,
    model: ModelConfig,
    device_name: str,
    memory_limit_bytes: int,
    weights_bytes: int,
) -> int:
    working_bytes = device.activation_bytes(
        num_tokens=config.max_num_batched_tokens,
        hidden_size=model.hidden_size,
        intermediate_size=model.intermediate_size,
        num_rows=min(config.max_num_seqs, config.max_num_batched_tokens),
        vocab_size=model.vocab_size,
    )
    base_bytes = working_bytes + (PROGRAM_BYTES if device_name == "cpu" else 0)
    free_bytes = device.kv_memory_bytes(
        device_name,
        memory_limit_bytes=memory_limit_bytes,
        utilization=config.gpu_memory_utilization,
        weights_bytes=weights_bytes,
        base_bytes=base_bytes,
    )
    wanted_bytes = config.kv_cache_memory_bytes
    if free_bytes <= 0 or (wanted_bytes is not None and wanted_bytes > free_bytes):
        kv_note = "" if wanted_bytes is None else f" and {wanted_bytes // MIB} MiB of KV cache"
        needed = weights_bytes + base_bytes + (wanted_bytes or 16 * MIB)
        needed_mib = -(-int(needed / config.gpu_memory_utilization) // MIB)
        raise ModelError(
            "MemoryTooSmall",
            f"{weights_bytes // MIB} MiB of weights, {base_bytes // MIB} MiB for the program{kv_note} "
            f"do not fit into {config.gpu_memory_utilization:.0%} of {memory_limit_bytes // MIB} MiB: "
            f"set spec.resources.memory to at least {needed_mib}Mi",
        )
    return free_bytes if wanted_bytes is None else wanted_bytes
