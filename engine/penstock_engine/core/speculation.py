"""Speculative decoding: its configuration, and the choice of the number of drafts for each step.

With d drafts for each of n sequences, and acceptance rate a,

    tokens per sequence   1 + a + a² + … + aᵈ      (Leviathan et al., 2023, equation 1)
    duration of the step  fixed + per_token · n · (1 + d)

The d with the most tokens per second is chosen. If it is 0, speculation pauses, and one step in
PROBE_STEPS has drafts to update the estimates.
"""

from dataclasses import dataclass
from typing import Literal

from penstock_engine.core.drafters import Drafter, NgramDrafter, SuffixDrafter, SuffixStoresBySalt
from penstock_engine.core.linear_fit import DECAY, LinearFit

Method = Literal["ngram", "suffix", "draft_model", "eagle"]
# Methods whose drafts the runner proposes, with weights that it loads from a directory.
METHODS_WITH_WEIGHTS = ("draft_model", "eagle")

# Interval, in steps, at which drafts are proposed even if they seem slower, to update the estimates.
PROBE_STEPS = 50
# Number of verified drafts below which the acceptance rate is too uncertain to use.
MIN_DRAFTS = 16


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


class DraftLengthController:
    """Chooses the number of drafts that maximizes tokens per second, from observed steps."""

    def __init__(self, max_drafts: int) -> None:
        self._max_drafts = max_drafts
        self._num_verified = 0.0
        self._num_accepted = 0.0
        self._num_steps = 0
        self._times = LinearFit()

    def num_drafts(self, num_sequences: int) -> int:
        """Choose the number of drafts per sequence for the next step. Called once for each step.

        num_sequences: number of sequences that sample a token in the step.
        """
        self._num_steps += 1
        fitted = self._times.fit()
        is_probe = self._num_steps % PROBE_STEPS == 0
        if fitted is None and is_probe:
            return 0  # steps of another size are needed to estimate the cost of a token
        if self._num_verified < MIN_DRAFTS or fitted is None or is_probe:
            return self._max_drafts
        fixed_s, per_token_s = fitted
        chance = self._num_accepted / self._num_verified
        best, best_rate = 0, 0.0
        tokens = 0.0
        for drafts in range(self._max_drafts + 1):
            tokens += chance**drafts
            # A step with only prompts counts as one sequence: the prompts that end sample a token.
            rate = tokens / (fixed_s + per_token_s * max(1, num_sequences) * (1 + drafts))
            if rate > best_rate * (1 + 1e-9):
                best, best_rate = drafts, rate
        return best

    def observe_acceptance(self, num_drafts: int, num_accepted: int) -> None:
        """Learn from the drafts of one sequence. Those after the first rejected one do not count."""
        self._num_verified = self._num_verified * DECAY + min(num_drafts, num_accepted + 1)
        self._num_accepted = self._num_accepted * DECAY + num_accepted

    def observe_step(self, num_tokens: int, duration_s: float) -> None:
        """Learn from the duration of one step. num_tokens: all that it computed, drafts included."""
        self._times.add(num_tokens, duration_s)


class Speculation:
    """The configured drafting method, and the controller of the number of drafts."""

    def __init__(
        self,
        config: SpeculationConfig,
        controller: DraftLengthController | None = None,
    ) -> None:
        self.config = config
        self.controller = controller or DraftLengthController(config.num_speculative_tokens)
        self._stores = SuffixStoresBySalt()

    def make_drafter(self, cache_salt: str) -> Drafter | None:
        """A drafter for a new sequence; None if the runner proposes the drafts."""
        match self.config.method:
            case "ngram":
                return NgramDrafter(self.config.prompt_lookup_min, self.config.prompt_lookup_max)
            case "suffix":
                store = self._stores.get(cache_salt)
                return SuffixDrafter(store, self.config.suffix_decoding_min_token_prob)
            case "draft_model" | "eagle":
                return None
