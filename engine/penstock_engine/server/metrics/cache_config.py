"""Labels of vLLM's metric cache_config_info."""

from penstock_engine.contract import metric_specs
from penstock_engine.memory.plan import MemoryPlan
from penstock_engine.options.config import EngineConfig

ENGINE_INDEX = "0"


def cache_config_labels(config: EngineConfig, memory_plan: MemoryPlan) -> dict[str, str]:
    """Returns the labels of the metric. Those of options that this engine lacks are "None"."""
    size_tokens = memory_plan.kv_capacity_tokens
    known: dict[str, object] = {
        "_block_size_resolved": True,
        "block_size": config.block_size,
        "cache_dtype": memory_plan.kv_dtype,
        "effective_attention_block_size": config.block_size,
        "enable_prefix_caching": config.enable_prefix_caching,
        "engine": ENGINE_INDEX,
        "gpu_memory_utilization": config.memory_utilization,
        "hash_block_size": config.block_size,
        "is_attention_free": False,
        "kv_cache_max_concurrency": round(size_tokens / memory_plan.max_model_len, 2),
        "kv_cache_memory_bytes": size_tokens * memory_plan.kv_bytes_per_token,
        "kv_cache_size_tokens": size_tokens,
        "num_cpu_blocks": 0,
        "num_gpu_blocks": memory_plan.num_blocks,
        "num_gpu_blocks_override": config.num_gpu_blocks_override,
        "prefix_caching_hash_algo": "sha256",
        "user_specified_block_size": True,
    }
    return {name: str(known.get(name)) for name in metric_specs.CACHE_CONFIG.labels}
