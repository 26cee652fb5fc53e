"""Settings of speculative decoding."""

from dataclasses import dataclass
from typing import Literal

Method = Literal["ngram", "suffix", "draft_model", "eagle"]
# Methods whose drafts the runner proposes, with weights that it loads from a directory.
METHODS_WITH_WEIGHTS = ("draft_model", "eagle")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig:
    """Settings of speculative decoding, with vLLM's names.

    prompt_lookup_min, prompt_lookup_max: n-gram lengths of method ngram. suffix_decoding_min_token_prob:
    for method suffix. model: directory of a small model (draft_model), or of a draft head over the
    target model's hidden states (eagle).
    """

    method: Method
    num_speculative_tokens: int
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 5
    suffix_decoding_min_token_prob: float = 0.1
    model: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.num_speculative_tokens <= 32:
            raise ValueError("num_speculative_tokens must be from 1 to 32")
        if not 1 <= self.prompt_lookup_min <= self.prompt_lookup_max <= 16:
            raise ValueError("1 <= prompt_lookup_min <= prompt_lookup_max <= 16 must hold")
        if not 0 < self.suffix_decoding_min_token_prob <= 1:
            raise ValueError("suffix_decoding_min_token_prob must be above 0 and at most 1")
        if (self.model is not None) != (self.method in METHODS_WITH_WEIGHTS):
            methods = " or ".join(METHODS_WITH_WEIGHTS)
            raise ValueError(f"model must be given with method {methods}, and only there")
