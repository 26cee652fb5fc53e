"""Scores the engines that may take a request, and chooses the one with the highest score.

SCORERS holds for every request: sent at once, from an admission queue, to a copy of its adapter, as a
mirrored copy, or in the simulator. The unit of a score is a token of work that the choice spares, such as
one in flight at the engine, or one of the prompt that its prefix cache holds.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from penstock.core.routing.request_attributes import RequestAttributes


class Engine(Protocol):
    """An engine, as `Endpoint`, `EngineLoad` or `AdapterReplica`. pod: "namespace/name"."""

    @property
    def pod(self) -> str: ...


class Candidates(NamedTuple):
    """A request, and the engines that may take it.

    tokens: in flight at each engine; 0 at all of them for a mirrored copy, which is not to follow load.
    """

    engines: Sequence[Engine]
    tokens: Sequence[float]
    request: RequestAttributes


# Returns the score of each candidate.
Scorer = Callable[[Candidates], Sequence[float]]
E = TypeVar("E", bound=Engine)


def score_load(candidates: Candidates) -> Sequence[float]:
    """Prefer engines with few tokens in flight."""
    return [-tokens for tokens in candidates.tokens]


SCORERS: tuple[tuple[float, Scorer], ...] = ((1.0, score_load),)  # with their weights


def choose(
    engines: Sequence[E], tokens: Sequence[float], draw: float, request: RequestAttributes
) -> E:
    """Choose the engine with the highest weighted sum of scores; `draw` decides between equal ones.

    engines: at least one. draw: uniform in [0, 1). Others: see `Candidates`.
    """
    candidates = Candidates(engines, tokens, request)
    (weight, scorer), *others = SCORERS
    totals = _weighted(weight, scorer(candidates))
    for weight, scorer in others:
        scores = _weighted(weight, scorer(candidates))
        totals = [total + score for total, score in zip(totals, scores, strict=True)]
    highest = max(totals)
    index = totals.index(highest)
    for _ in range(int(draw * totals.count(highest))):
        index = totals.index(highest, index + 1)
    return engines[index]


def _weighted(weight: float, scores: Sequence[float]) -> Sequence[float]:
    return scores if weight == 1 else [weight * score for score in scores]
