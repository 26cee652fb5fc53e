"""From pieces of work and the time each took to the model of an iteration."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from penstock.sim.profile import IterationTimes

MAX_NOISE = 0.3
NUM_TERMS = 6
ROUNDS = 5
# What took five times as long as is foretold, or more, was held up by something else and counts for less.
LEAST_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Work that was done in time_s: so many iterations, with so much in all of them together.

    pairs: of a prompt's token and one before it. sequences, kv_tokens: that decoded, and that they
    attended to, summed over the iterations. requests: whose way in and out is in time_s.
    """

    iterations: float
    prompt_tokens: float = 0.0
    pairs: float = 0.0
    sequences: float = 0.0
    kv_tokens: float = 0.0
    requests: float = 0.0
    time_s: float

    @property
    def features(self) -> tuple[float, ...]:
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
    """request_s: what a request takes beside its iterations. error: mean relative residual."""

    times: IterationTimes
    request_s: float
    error: float


def fit(samples: Sequence[Sample]) -> Fit:
    """Least squares of the relative error, no term below zero (Lawson and Hanson's NNLS).

    Relative to what is foretold, in rounds: relative to what was measured, what happened to be short
    counts for more, and means are missed by twice the square of the relative noise.
    A sample without a duration is skipped: its tokens reached a busy client all at once.
    Raises ValueError when the samples do not tell an iteration's time.
    """
    samples = [sample for sample in samples if sample.time_s > 0]
    if len(samples) < NUM_TERMS:
        raise ValueError(f"{len(samples)} samples are too few to fit {NUM_TERMS} terms")
    took_s = np.array([sample.time_s for sample in samples])
    work = np.array([sample.features for sample in samples])
    said_s = took_s
    for _ in range(ROUNDS):
        rows = work / said_s[:, None]
        scale = np.maximum(rows.max(axis=0), 1e-30)  # alike in size, so that no term drowns
        weights, _ = nnls(rows / scale, took_s / said_s)
        terms = weights / scale
        said_s = np.maximum(work @ terms, LEAST_SHARE * took_s)
    fixed_s, prompt_token_s, pair_s, sequence_s, kv_token_s, request_s = map(float, terms)
    if not (fixed_s and prompt_token_s):
        raise ValueError(
            "the samples do not tell what an iteration and what a prompt token takes; the engine "
            "was busy with something else, or its prompts came from the prefix cache"
        )
    residuals = took_s / said_s - 1
    times = IterationTimes(
        fixed_s=fixed_s,
        prompt_token_s=prompt_token_s,
        pair_s=pair_s,
        sequence_s=sequence_s,
        kv_token_s=kv_token_s,
        noise=min(MAX_NOISE, float(residuals.std())),
    )
    return Fit(times, request_s, float(np.abs(residuals).mean()))
