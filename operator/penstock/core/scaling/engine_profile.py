"""Measured profile of an engine, as scaling rules with a performance model need it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """Profile of a replica. An iteration takes base_s plus the cost of each token and sequence in it."""

    base_s: float
    prefill_token_s: float
    sequence_s: float
    kv_token_s: float
    max_batched_tokens: int  # prompt and output tokens per iteration
    max_sequences: int  # concurrent sequences
    kv_capacity_tokens: int

    def iteration_s(self, prefill_tokens: float, sequences: float, kv_tokens: float) -> float:
        return (
            self.base_s
            + self.prefill_token_s * prefill_tokens
            + self.sequence_s * sequences
            + self.kv_token_s * kv_tokens
        )

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prefill throughput of an idle replica with full chunks (llm-d's V_P)."""
        return self.max_batched_tokens / self.iteration_s(self.max_batched_tokens, 1, 0)
