"""Scores the engines that may take a request, and chooses the one with the highest score.

SCORERS holds for every request: sent at once, from an admission queue, to a copy of its adapter, as a
mirrored copy, or in the simulator. The unit of a score is a token of work that the choice spares, such as
one in flight at the engine, or one of the prompt that its prefix cache holds.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar


class Engine(Protocol):
    """An engine, as `Endpoint` or `EngineLoad`. pod: "namespace/name"."""

    @property
    def pod(self) -> str: ...


class Candidates(NamedTuple):
    """Engines that may take a request.

    tokens: in flight at each engine. key: what is alike in the requests of one conversation or user
    (`affinity_key`); None: nothing is known to be.
    """

    engines: Sequence[Engine]
    tokens: Sequence[float]
    key: bytes | None


# Returns the score of each candidate.
Scorer = Callable[[Candidates], Sequence[float]]
E = TypeVar("E", bound=Engine)


def score_load(candidates: Candidates) -> Sequence[float]:
    """Prefer engines with few tokens in flight."""
    return [-tokens for tokens in candidates.tokens]


SCORERS: tuple[tuple[float, Scorer], ...] = ((1.0, score_load),)  # with their weights


def choose(
    engines: Sequence[E], tokens: Sequence[float], draw: float, key: bytes | None = None
) -> E:
    """Choose the engine with the highest weighted sum of scores; `draw` decides between equal ones.

    engines: at least one. draw: uniform in [0, 1). Others: see `Candidates`.
    """
    candidates = Candidates(engines, tokens, key)
    (weight, scorer), *others = SCORERS
    totals = [weight * score for score in scorer(candidates)]
    for weight, scorer in others:
        scores = scorer(candidates)
        totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
    highest = max(totals)
    best = [engine for engine, total in zip(engines, totals, strict=True) if total == highest]
    return best[int(draw * len(best))]
