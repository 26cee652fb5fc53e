"""How many guesses are worth a step's time, decided from what guesses and steps have cost.

With d drafts for each of n sequences, and the next draft right with probability a,

    tokens per sequence   1 + a + a² + … + aᵈ      (Leviathan et al., 2023, equation 1)
    time of the step      fixed + per_token · n · (1 + d)

The d with the most tokens per second is taken; where that is none, speculation rests, and one step
in PROBE_STEPS tries again.
"""

from dataclasses import dataclass
from typing import Literal

from penstock_engine.core.drafting import Drafter, NgramDrafter, SuffixDrafter, SuffixStores
from penstock_engine.core.trend import DECAY, Trend

Method = Literal["ngram", "suffix", "draft_model", "eagle"]
# Those for which the runner guesses, by the weights of a folder.
BY_WEIGHTS = ("draft_model", "eagle")

PROBE_STEPS = 50
# Before so many drafts were judged, what is believed of them says little.
MIN_DRAFTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig:
    """vLLM's names. prompt_lookup: of ngram; min_token_prob: of suffix. model: a folder, of a small
    model (draft_model) or of a head over the model's own states (eagle)."""

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
        if (self.model is not None) != (self.method in BY_WEIGHTS):
            methods = " or ".join(BY_WEIGHTS)
            raise ValueError(f"model must be given with method {methods}, and only there")


class Governor:
    """Learns from each step; `num_drafts` is how many the next step may try for a sequence."""

    def __init__(self, max_drafts: int) -> None:
        self._max_drafts = max_drafts
        self._judged = 0.0
        self._right = 0.0
        self._num_steps = 0
        self._times = Trend()

    def num_drafts(self, num_sequences: int) -> int:
        """Decided anew for each step; num_sequences: that will draw a token in it."""
        self._num_steps += 1
        fitted = self._times.fit()
        is_probe = self._num_steps % PROBE_STEPS == 0
        if fitted is None and is_probe:
            return 0  # else all steps look alike, and what a draft costs never shows
        if self._judged < MIN_DRAFTS or fitted is None or is_probe:
            return self._max_drafts
        fixed_s, per_token_s = fitted
        chance = self._right / self._judged
        best, best_rate = 0, 0.0
        tokens = 0.0
        for drafts in range(self._max_drafts + 1):
            tokens += chance**drafts
            # Where only prompts are computed, those that end draw the first tokens.
            rate = tokens / (fixed_s + per_token_s * max(1, num_sequences) * (1 + drafts))
            if rate > best_rate * (1 + 1e-9):
                best, best_rate = drafts, rate
        return best

    def judged(self, num_drafts: int, num_right: int) -> None:
        """Drafts after the first wrong one were not judged."""
        self._judged = self._judged * DECAY + min(num_drafts, num_right + 1)
        self._right = self._right * DECAY + num_right

    def timed(self, num_tokens: int, duration_s: float) -> None:
        self._times.add(num_tokens, duration_s)


class Speculation:
    """The configured way to guess, and the governor over it.

    after_prompts: whether there are guesses beyond the last token of a prompt, too, in the step that
    computes it.
    """

    def __init__(
        self,
        config: SpeculationConfig,
        governor: Governor | None = None,
        after_prompts: bool = False,
    ) -> None:
        self.config = config
        self.governor = governor or Governor(config.num_speculative_tokens)
        self.after_prompts = after_prompts
        self._stores = SuffixStores()

    def drafter(self, cache_salt: str) -> Drafter | None:
        """For one new sequence; None where the runner guesses: then there is only room kept."""
        match self.config.method:
            case "ngram":
                return NgramDrafter(self.config.prompt_lookup_min, self.config.prompt_lookup_max)
            case "suffix":
                store = self._stores.of(cache_salt)
                return SuffixDrafter(store, self.config.suffix_decoding_min_token_prob)
            case "draft_model" | "eagle":
                return None
