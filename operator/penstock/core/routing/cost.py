"""Chooses the engine where a request costs the least time, its own and that of the requests already there.

The rule holds for every request: sent at once, from an admission queue, to a copy of its adapter, or in the
simulator. What it costs is a time, in seconds:

    first token   until its first token: the prompts before it, and the part of its own that is not cached
    HARM times    by which it delays the requests that the engine has, and by which they delay its own output

A bounded load keeps prompts that begin alike from overloading the engine that has their beginning.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol
from zlib import crc32

# Weight of a second of delay of a request that has its first token, against a second before it.
HARM = 0.1
# Tokens in flight of an engine, over the mean of the candidates, above which it gets no further request.
LOAD_FACTOR = 2.0
# Engines that have as much of the prompt as the best one, and cost no more than this part and this time above
# it, are equal: predictions are not more exact (results/routing.md).
TOLERANCE, TOLERANCE_S = 0.25, 0.005
# Part of the time of the uncached tokens that a request's usual engine may cost more than the best one.
HOME_SHARE = 0.25


class Engine(Protocol):
    """Load of an engine, as `EngineLoad` predicts it. pod: "namespace/name"."""

    @property
    def pod(self) -> str: ...
    @property
    def free_s(self) -> float: ...
    @property
    def least_wait_s(self) -> float: ...
    @property
    def step_s(self) -> float: ...
    @property
    def token_s(self) -> float: ...
    @property
    def num_active(self) -> int: ...
    @property
    def kv_tokens(self) -> float: ...


class Candidates(NamedTuple):
    """A request, and the engines that may take it, at one moment.

    uncached_tokens: of its prompt, at each engine. output_tokens: expected.
    """

    engines: Sequence[Engine]
    uncached_tokens: Sequence[float]
    output_tokens: float
    now: float


def costs_s(candidates: Candidates) -> list[float]:
    """Seconds that the request costs at each candidate."""
    now, step_share = candidates.now, 1 + HARM * candidates.output_tokens
    return [
        (wait_s if (wait_s := e.free_s - now) > e.least_wait_s else e.least_wait_s)
        + e.step_s * step_share
        + e.token_s * tokens * (1 + HARM * e.num_active)
        for e, tokens in zip(candidates.engines, candidates.uncached_tokens, strict=True)
    ]


def choose(candidates: Candidates, draw: float, home: bytes | None = None) -> int:
    """Choose the candidate that costs least. Returns its index.

    Of equal ones the one with the fewest tokens in flight is chosen, and of these `draw` decides.

    draw: uniform in [0, 1). home: key of requests that are alike; they go to the same engine if it costs
    hardly more, so that gateways which do not know of each other's requests choose alike. None: no matter.
    """
    totals = costs_s(candidates)
    able = _below_bound(candidates.engines)
    best = totals.index(min(totals)) if able is None else min(able, key=totals.__getitem__)
    if home is not None:
        index = _home_of(candidates.engines, home)
        extra_s = HOME_SHARE * candidates.engines[index].token_s * min(candidates.uncached_tokens)
        if totals[index] <= totals[best] + extra_s and (able is None or index in able):
            return index
    equal = _equal_to(best, totals, candidates, able)
    return equal[int(draw * len(equal))]


def _equal_to(
    best: int, totals: Sequence[float], candidates: Candidates, able: Collection[int] | None
) -> list[int]:
    """Indexes of the engines that are as good as the best one, with the fewest tokens in flight of all these.

    able: indexes of those that may be chosen; None: all may.
    """
    most_s = totals[best] * (1 + TOLERANCE) + TOLERANCE_S
    engines, tokens = candidates.engines, candidates.uncached_tokens
    near = [i for i, total in enumerate(totals) if total <= most_s]
    equal = [i for i in near if tokens[i] <= tokens[best] and (able is None or i in able)]
    least = min([engines[i].kv_tokens for i in equal])
    return [i for i in equal if engines[i].kv_tokens == least]


def _below_bound(engines: Sequence[Engine]) -> list[int] | None:
    """Indexes of the engines whose load is within the bound; None: that of all is."""
    loads = [engine.kv_tokens for engine in engines]
    bound = LOAD_FACTOR * sum(loads) / len(loads)
    if max(loads) <= bound:
        return None
    return [i for i, load in enumerate(loads) if load <= bound]


def _home_of(engines: Sequence[Engine], key: bytes) -> int:
    """Index of the engine by rendezvous hashing: the same one for the same key while it is there.

    Python hashes numbers alike in every process.
    """
    number = crc32(key)
    ranks = [hash((crc32(engine.pod.encode()), number)) for engine in engines]
    return ranks.index(min(ranks))
