"""Configuration of the scheduler."""

from dataclasses import dataclass
from typing import Literal

from penstock_engine.core.speculation.config import SpeculationConfig


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits and policies of one scheduler."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    num_blocks: int
    prefix_caching: bool = True
    max_num_queued_seqs: int = 1024
    policy: Literal["fcfs", "priority"] = "fcfs"  # order of the waiting queue
    speculation: SpeculationConfig | None = None
    num_host_blocks: int = 0  # capacity of the host tier for evicted blocks
    max_adapters: int = 0  # number of LoRA adapters that may run at once
    # Time for which sequences whose adapter runs may pass one whose adapter does not; no flag sets it
    adapter_max_wait_s: float = 1.0
    # The largest sliding window of the layers, the token itself included; None: some layer has full attention
    window_tokens: int | None = None
    block_events: bool = False  # whether changes of the prefix cache are recorded

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_num_queued_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.window_tokens is not None and self.window_tokens < 1:
            raise ValueError("a token sees at least itself")
        if self.max_num_tokens < 2:
            raise ValueError("a sequence needs room for a prompt token and a generated one")

    @property
    def max_num_tokens(self) -> int:
        """Maximum length of a sequence, prompt and output: limited by the model and by the pool."""
        return min(self.max_model_len, self.num_blocks * self.block_size)

    @property
    def max_num_open_seqs(self) -> int:
        """Maximum number of sequences that run or wait. Free slots count in addition to the queue,
        so that an idle engine accepts a request with more choices than the queue is long."""
        return self.max_num_seqs + self.max_num_queued_seqs
