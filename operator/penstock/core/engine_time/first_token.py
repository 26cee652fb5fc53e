"""Time to the first token of a prompt: a model of the engine's iterations, fitted to its answers.

An engine computes the prompts that it has in order, in chunks beside one token for each decoding sequence:

    TTFT = s * (1 + P / STEP_TOKENS) + c1 * P      s = c0 + c3 * decoding sequences + c4 * their KV tokens

with P the uncached tokens of the prompt and of those before it. The coefficients are those of
`IterationModel`: an answer is a window of 1 + P / STEP_TOKENS iterations.
"""

from dataclasses import dataclass

from penstock.core.engine_time.iteration import Fit, IterationModel, Window

# Prompt tokens of one iteration. Engines differ; the fit puts the difference into the cost of a token.
STEP_TOKENS = 2048.0
# Coefficients before the first answer, which scales them: those of 8 billion weights on an A100.
PRIOR = IterationModel(base_s=0.02, prefill_token_s=8e-5, sequence_s=5e-5, kv_token_s=1.5e-7)
# Standard deviation of each coefficient of a prior, as a fraction of it.
PRIOR_SPREAD = 1.0
# The least time that counts as measured.
LEAST_S = 1e-6


@dataclass(frozen=True, slots=True)
class PromptWork:
    """Work of an engine from when a prompt is sent until its first token.

    tokens: uncached ones of the prompt and of those before it. sequences: those that decode meanwhile, with
    kv_tokens in all.
    """

    tokens: float
    sequences: float
    kv_tokens: float


@dataclass(frozen=True, slots=True)
class FirstTokenModel:
    """Model of the times to the first token at one engine."""

    fit: Fit = Fit.around(PRIOR, PRIOR_SPREAD)  # noqa: RUF009 - immutable

    @property
    def is_known(self) -> bool:
        """Whether an answer has been measured."""
        return self.fit.windows > 0

    def step_s(self, sequences: float, kv_tokens: float) -> float:
        """Seconds of an iteration that computes no prompt."""
        return self.fit.model.time_s(0.0, sequences, kv_tokens)

    def token_s(self, step_s: float) -> float:
        """Seconds of each prompt token beside decoding sequences that take step_s in an iteration."""
        return self.fit.model.prefill_token_s + step_s / STEP_TOKENS

    def after_first_token(self, work: PromptWork, took_s: float) -> "FirstTokenModel":
        """Add one answer. took_s: from when the request was sent to the first token."""
        steps = 1 + work.tokens / STEP_TOKENS
        window = Window(
            1, work.tokens / steps, work.sequences, work.kv_tokens, max(LEAST_S, took_s / steps)
        )
        return FirstTokenModel(self.fit.updated(window))

    def predict_s(self, work: PromptWork) -> float:
        """Predicted time to the first token."""
        step_s = self.step_s(work.sequences, work.kv_tokens)
        return step_s + work.tokens * self.token_s(step_s)
