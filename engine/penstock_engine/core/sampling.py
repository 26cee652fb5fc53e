"""Sampling parameters of a request."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters and stop conditions of a request. The server has validated every field.

    The token that ends a sequence is part of its output.
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0  # 0 is greedy
    # top_p 1, top_k 0, min_p 0, penalties of 0 and a repetition_penalty of 1 have no effect
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[tuple[int, ...], ...] = ()  # token sequences that must not be generated
    allowed_token_ids: frozenset[int] | None = None  # None allows all
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    seed: int = 0  # the same seed gives the same random numbers, whatever else is in the batch
    # Number of most probable tokens to report in addition to the sampled one; None: no log-probabilities
    logprobs: int | None = None
    # Tokens to report instead of the most probable; logprobs is 0 then
    logprob_token_ids: tuple[int, ...] = ()
    prompt_logprobs: int | None = None
    wants_embedding: bool = (
        False  # report the hidden state of the last prompt token, after the final norm
    )

    @property
    def is_greedy(self) -> bool:
        """Whether to take the most probable token. Temperatures too small to divide by count as 0."""
        return self.temperature < 1e-5

    @property
    def has_penalties(self) -> bool:
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )
