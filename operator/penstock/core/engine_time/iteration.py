"""Iteration time of an engine: a linear model, fitted to measurements by recursive least squares.

    T = c0 + c1 * prefill tokens + c3 * decoding sequences + c4 * KV tokens that these attend to

This is the linear form of the models of Vidur and BLIS. Literature on autoscaling has c2 for attention within
a prompt. Here that is part of c1, at the present prompt lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

# Coefficients of the model.
NUM_TERMS = 4
# An iteration at which two models are compared: prefill tokens, sequences, KV tokens.
TYPICAL = (64.0, 8.0, 8_000.0)
# Least time of such an iteration that bounds the uncertainty of coefficients.
LEAST_TYPICAL_S = 1e-4
# Least variance of a window's time, in square seconds, that rounding errors leave.
LEAST_VARIANCE = 1e-18
# Chi-square with one degree of freedom beyond which a window is an outlier: one in a thousand is by chance.
GATE = 10.8
# Consecutive outliers after which the engine has changed, if their ratios of measured to expected time are
# within this factor. Those of a burst are not: they ranged from 2.3 to 8.6.
CHANGED_AFTER, AGREEING = 8, 2.0
# Weight of earlier windows after one more: half is forgotten in 1,400 windows, about 45 minutes.
FORGETTING = 0.9995
# A prior that is wrong by more than this factor is scaled to the first window.
WRONG_PRIOR = 2.0
# Number of windows from which a fit is more than its prior.
MIN_WINDOWS = 5


@dataclass(frozen=True, slots=True)
class IterationModel:
    """Iteration time in seconds: c0, and those for each prefill token, sequence and KV token."""

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
    """Work of one engine in some time, as means over its iterations."""

    steps: int
    prefill_tokens: float
    sequences: float
    kv_tokens: float
    time_s: float


Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """Recursive least squares over windows. Errors are relative, so that a slow engine is not a noisy one.

    covariance: of the coefficients. noise: variance of the relative residual. windows: number of windows so
    far. beyond: ratios of measured to expected time of the last windows, if these were outliers.
    """

    model: IterationModel
    covariance: Matrix
    noise: float = 0.01
    windows: int = 0
    beyond: tuple[float, ...] = ()

    @classmethod
    def around(cls, prior: IterationModel, spread: float = 0.5) -> "Fit":
        """A fit to no window yet. spread: standard deviation of each coefficient, as a fraction of it."""
        diagonal = [(spread * max(term, 1e-9)) ** 2 for term in prior.terms]
        rows = range(NUM_TERMS)
        return cls(prior, tuple(tuple(diagonal[i] if i == j else 0.0 for j in rows) for i in rows))

    @property
    def is_measured(self) -> bool:
        return self.windows >= MIN_WINDOWS

    def updated(self, window: Window) -> "Fit":
        """Add a window. An outlier is only remembered, until so many agree that the engine has changed."""
        features = (1.0, window.prefill_tokens, window.sequences, window.kv_tokens)
        expected = sum(a * b for a, b in zip(self.model.terms, features, strict=True))
        factor = window.time_s / max(expected, 1e-9)
        if not self.windows and not 1 / WRONG_PRIOR < factor < WRONG_PRIOR:
            return replace(Fit.around(self.model.times(factor), 1.0), windows=1)
        weighted = [
            sum(a * b for a, b in zip(row, features, strict=True)) for row in self.covariance
        ]
        spread = sum(a * b for a, b in zip(weighted, features, strict=True))
        own = self.noise * window.time_s**2
        error = window.time_s - expected
        if error**2 / (spread + own) > GATE:
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
            _updated_covariance(self.covariance, weighted, spread, own, self.model),
            noise=max(1e-4, 0.98 * self.noise + 0.02 * relative),
            windows=self.windows + 1,
        )


def _updated_covariance(
    covariance: Matrix, weighted: Sequence[float], spread: float, own: float, model: IterationModel
) -> Matrix:
    """The covariance after a window, with some of what earlier ones told forgotten.

    Usually all of it is forgotten alike. While all work is alike, that would add to what the windows do not
    tell without bound, until the coefficients are made of rounding errors. So, once a coefficient is less
    certain than the time of a whole typical iteration, only what the window tells again is forgotten.
    """
    most_s = max(LEAST_TYPICAL_S, model.time_s(*TYPICAL))
    limits = [most_s, *(most_s / feature for feature in TYPICAL)]
    if all(row[i] <= limits[i] ** 2 for i, row in enumerate(covariance)):
        share, factor = 1 / (spread + own), 1 / FORGETTING
    else:  # the variance of the window's time is the same as with the usual forgetting
        told = 1 - own / (spread + own) / FORGETTING
        share, factor = told / max(spread, LEAST_VARIANCE), 1.0
    return tuple(
        tuple(factor * (value - share * a * b) for value, b in zip(row, weighted, strict=True))
        for row, a in zip(covariance, weighted, strict=True)
    )
