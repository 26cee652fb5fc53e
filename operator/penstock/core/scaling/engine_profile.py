"""What a published rule has to be told about the engine: measured once, as their guides ask."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """One replica. An iteration takes base_s, and for each token or sequence in it so much more.

    max_batched_tokens: prompt and output tokens of one iteration. max_sequences: running at once.
    """

    base_s: float
    prefill_token_s: float
    sequence_s: float
    kv_token_s: float
    max_batched_tokens: int
    max_sequences: int
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
        """llm-d's V_P: a full chunk over the time it takes on an idle replica."""
        return self.max_batched_tokens / self.iteration_s(self.max_batched_tokens, 1, 0)
