"""Fits the model of iteration times to samples of work and duration."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from penstock.sim.profile import IterationTimes

# Upper limit of the noise in a profile: the relative standard deviation of samples.
MAX_NOISE = 0.3
NUM_TERMS = 6
# Rounds of reweighting by the predicted time.
ROUNDS = 5
# Lower bound of predicted / measured time: a sample that took over 5 times as long as predicted was
# delayed by something else, and gets less weight.
MIN_PREDICTED_FRACTION = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The work that an engine did in time_s, summed over its iterations."""

    iterations: float
    prompt_tokens: float = 0.0
    pairs: float = 0.0  # attention pairs of a prompt token and an earlier one
    sequences: float = 0.0  # decoding sequences
    kv_tokens: float = 0.0  # tokens that they attended to
    requests: float = 0.0  # requests whose overhead outside of iterations is part of time_s
    time_s: float

    @property
    def features(self) -> tuple[float, ...]:
        """The terms of the linear model, in the order of the fit's weights."""
        return (
            self.iterations,
            self.prompt_tokens,
            self.pairs,
            self.sequences,
            self.kv_tokens,
            self.requests,
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model. request_s: overhead of a request outside of iterations. error: mean
    relative residual."""

    times: IterationTimes
    request_s: float
    error: float


def fit(samples: Sequence[Sample]) -> Fit:
    """Fit non-negative weights by least squares of the relative error (Lawson and Hanson's NNLS).

    Errors are relative to the predicted time, reweighted in ROUNDS rounds. Relative to the measured
    time, samples that happened to be short would count more, and means would be underestimated by
    twice the square of the relative noise. Samples without a duration are skipped: a busy client read
    all their tokens at once. Raises ValueError if the samples do not determine an iteration's time.
    """
    samples = [sample for sample in samples if sample.time_s > 0]
    if len(samples) < NUM_TERMS:
        raise ValueError(f"{len(samples)} samples are too few to fit {NUM_TERMS} terms")
    measured_s = np.array([sample.time_s for sample in samples])
    work = np.array([sample.features for sample in samples])
    predicted_s = measured_s
    for _ in range(ROUNDS):
        rows = work / predicted_s[:, None]
        scale = np.maximum(rows.max(axis=0), 1e-30)  # similar magnitudes for numerical stability
        weights, _ = nnls(rows / scale, measured_s / predicted_s)
        terms = weights / scale
        predicted_s = np.maximum(work @ terms, MIN_PREDICTED_FRACTION * measured_s)
    fixed_s, prompt_token_s, pair_s, sequence_s, kv_token_s, request_s = map(float, terms)
    if not (fixed_s and prompt_token_s):
        raise ValueError(
            "the samples do not determine the time of an iteration and of a prompt token; the engine "
            "was busy with something else, or its prompts were in the prefix cache"
        )
    residuals = measured_s / predicted_s - 1
    times = IterationTimes(
        fixed_s=fixed_s,
        prompt_token_s=prompt_token_s,
        pair_s=pair_s,
        sequence_s=sequence_s,
        kv_token_s=kv_token_s,
        noise=min(MAX_NOISE, float(residuals.std())),
    )
    return Fit(times, request_s, float(np.abs(residuals).mean()))
