"""What one engine is told, by vLLM's names for it."""

from dataclasses import dataclass
from pathlib import Path

from penstock_engine.core.speculation import SpeculationConfig
from penstock_engine.models.shard import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The flags of `penstock-engine serve` that shape the engine. None: worked out from the model
    and the memory there is."""

    model_dir: Path
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_num_queued_reqs: int = 1024
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    dtype: str = "auto"
    enable_prefix_caching: bool = True
    speculative_config: SpeculationConfig | None = None
    seed: int = 0
    device: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    enable_expert_parallel: bool = False

    @property
    def layout(self) -> Layout:
        return Layout(
            self.tensor_parallel_size, self.pipeline_parallel_size, self.enable_expert_parallel
        )

    @property
    def draft_model_dir(self) -> Path | None:
        """The folder of the model that guesses, where one does."""
        config = self.speculative_config
        return None if config is None or config.model is None else Path(config.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The flags of `penstock-engine serve` that shape its HTTP side."""

    host: str
    port: int
    served_model_name: str
    api_key: str | None = None
    shutdown_timeout_s: float = 30.0
