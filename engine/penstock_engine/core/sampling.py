"""How one request wants its tokens drawn, and when it wants to stop."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Validated by the server before it gets here; the engine trusts every field.

    temperature 0 is greedy. top_k 0, top_p 1 and min_p 0 are off. The same seed draws the same
    tokens whatever else is in the batch. The token that ends a sequence is part of its output.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    seed: int | None = None

    @property
    def is_greedy(self) -> bool:
        """Temperatures too small to divide by count as 0."""
        return self.temperature < 1e-5
