"""Chooses the number of drafts for each step of speculative decoding.

With d drafts for each of n sequences, and acceptance rate a,

    tokens per sequence   1 + a + a² + … + aᵈ      (Leviathan et al., 2023, equation 1)
    duration of the step  fixed + per_token · n · (1 + d)

The d with the most tokens per second is chosen. If it is 0, speculation pauses, and one step in
PROBE_STEPS has drafts to update the estimates.
"""

from penstock_engine.core.linear_fit import DECAY, LinearFit

# Interval, in steps, at which drafts are proposed even if they seem slower, to update the estimates.
PROBE_STEPS = 50
# Number of verified drafts below which the acceptance rate is too uncertain to use.
MIN_DRAFTS = 16


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
