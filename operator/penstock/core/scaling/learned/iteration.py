"""How long one iteration of an engine takes, and how that is learned from what engines report.

    T = c0 + c1 * prefill tokens + c3 * sequences that decode + c4 * KV tokens they attend to

The model of Vidur and of BLIS in its linear form (autoscaling literature numbers the coefficients
so that c2 is attention within a prompt; here it is part of c1, at the prompt lengths there are).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from penstock.core.scaling.signals import EngineReading

NUM_TERMS = 4
# An iteration at which two models are compared: prefill tokens, sequences, KV tokens.
TYPICAL = (64.0, 8.0, 8_000.0)
# Chi-square with one degree of freedom: one honest window in a thousand is beyond.
GATE = 10.8
# So many windows beyond the gate in a row that agree on how far are no outliers: the engine has changed.
# Those that a burst spoils do not agree: they said 2.3 to 8.6 times the time that was true.
CHANGED_AFTER, AGREEING = 8, 2.0
# Knowledge fades by half in 1,400 windows, about 45 minutes.
FORGETTING = 0.9995
# A belief that is wrong by more than this factor is scaled to the first window before it is fitted.
WRONG_BELIEF = 2.0
# A window with fewer iterations says little.
MIN_STEPS = 4


@dataclass(frozen=True, slots=True)
class IterationModel:
    """All in seconds: for an iteration, for each prefill token, sequence and KV token in it."""

    base_s: float
    prefill_token_s: float
    sequence_s: float
    kv_token_s: float

    @property
    def terms(self) -> tuple[float, float, float, float]:
        return self.base_s, self.prefill_token_s, self.sequence_s, self.kv_token_s

    def times(self, factor: float) -> "IterationModel":
        return IterationModel(*(factor * term for term in self.terms))

    def time_s(self, prefill_tokens: float, sequences: float, kv_tokens: float) -> float:
        return (
            self.base_s
            + self.prefill_token_s * prefill_tokens
            + self.sequence_s * sequences
            + self.kv_token_s * kv_tokens
        )


@dataclass(frozen=True, slots=True)
class Window:
    """What one engine did between two readings: means over its iterations."""

    steps: int
    prefill_tokens: float
    sequences: float
    kv_tokens: float
    time_s: float

    @classmethod
    def between(
        cls, earlier: EngineReading, later: EngineReading, kv_tokens: float, prompt_tokens: float
    ) -> "Window | None":
        """kv_tokens: held in the mean iteration. prompt_tokens: of the mean request, which each that
        decodes attends to, though it shares blocks with others. None when too little was computed,
        or the engine began anew.

        Of an engine that does not tell how long it was busy, the mean gap between tokens is taken for
        the mean time of an iteration: it is where as many decode in each.
        """
        steps = later.steps - earlier.steps
        gaps = later.itl_s.increase_over(earlier.itl_s)
        if (
            steps < MIN_STEPS
            or gaps.count < MIN_STEPS
            or gaps.total <= 0
            or later.prompt_tokens < earlier.prompt_tokens
        ):
            return None
        computed = later.prompt_tokens - later.cached_tokens
        computed -= earlier.prompt_tokens - earlier.cached_tokens
        decoding, time_s = gaps.count / steps, gaps.total / gaps.count
        if earlier.busy_s is not None and later.busy_s is not None:
            time_s = (later.busy_s - earlier.busy_s) / steps
        return cls(
            steps=steps,
            prefill_tokens=max(0, computed) / steps,
            sequences=decoding,
            kv_tokens=max(kv_tokens, decoding * prompt_tokens),
            time_s=time_s,
        )


Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """Recursive least squares over windows, in relative error: a slow engine is not a noisy one.

    scale: what each term contributes at a typical load, so that the numbers are alike.
    covariance: of the scaled terms. noise: the variance of the relative residual. beyond: how many times
    as long as expected the last windows took, where they were beyond the gate.
    """

    model: IterationModel
    covariance: Matrix
    noise: float = 0.01
    windows: int = 0
    beyond: tuple[float, ...] = ()

    @classmethod
    def around(cls, prior: IterationModel, spread: float = 0.5) -> "Fit":
        """spread: by how much of itself each coefficient may be wrong, one standard deviation."""
        diagonal = [(spread * max(term, 1e-9)) ** 2 for term in prior.terms]
        rows = range(NUM_TERMS)
        return cls(prior, tuple(tuple(diagonal[i] if i == j else 0.0 for j in rows) for i in rows))

    def after(self, window: Window) -> "Fit":
        """With one more window, or without it when it cannot be true."""
        features = (1.0, window.prefill_tokens, window.sequences, window.kv_tokens)
        expected = sum(a * b for a, b in zip(self.model.terms, features, strict=True))
        factor = window.time_s / max(expected, 1e-9)
        if not self.windows and not 1 / WRONG_BELIEF < factor < WRONG_BELIEF:
            return replace(Fit.around(self.model.times(factor), 1.0), windows=1)
        weighted = [
            sum(a * b for a, b in zip(row, features, strict=True)) for row in self.covariance
        ]
        spread = sum(a * b for a, b in zip(weighted, features, strict=True))
        own = self.noise * window.time_s**2
        error = window.time_s - expected
        surprise = error**2 / (spread + own)
        if surprise > GATE:
            beyond = (*self.beyond, factor)[-CHANGED_AFTER:]
            if len(beyond) < CHANGED_AFTER or max(beyond) > AGREEING * min(beyond):
                return replace(self, beyond=beyond)
            changed = self.model.times(median(beyond))
            return replace(Fit.around(changed, 1.0), windows=self.windows)
        gain = [value / (spread + own) for value in weighted]
        terms = [max(0.0, t + g * error) for t, g in zip(self.model.terms, gain, strict=True)]
        relative = (error / window.time_s) ** 2
        return Fit(
            IterationModel(*terms),
            _shrunk(self.covariance, gain, weighted),
            noise=max(1e-4, 0.98 * self.noise + 0.02 * relative),
            windows=self.windows + 1,
        )


def _shrunk(covariance: Matrix, gain: Sequence[float], weighted: Sequence[float]) -> Matrix:
    return tuple(
        tuple((value - g * w) / FORGETTING for value, w in zip(row, weighted, strict=True))
        for row, g in zip(covariance, gain, strict=True)
    )
