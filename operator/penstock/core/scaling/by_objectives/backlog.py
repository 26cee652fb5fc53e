"""Standing backlog: the least work that waited at any time within the last start-up.

A queue that comes and goes is served by the present replicas. A queue that never empties is not, and arrivals
do not show it: closed-loop clients, which send the next request after the last answer, send no more than the
replicas serve. The minimum over an interval tells both apart, as in CoDel (Nichols and Jacobson, 2012).
"""

import math
from dataclasses import dataclass

from penstock.core.scaling.by_objectives.history import index_at
from penstock.core.scaling.signals import GatewayReading, Observation


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waiting work at a time: prompt tokens that are not computed, and requests without a sequence."""

    at_s: float
    prompt_tokens: float
    requests: int

    @classmethod
    def of(cls, seen: Observation) -> "Waiting":
        pending = sum(reading.prefill_tokens_pending for reading in seen.readings)
        if isinstance(seen.gateway, GatewayReading):
            pending += seen.gateway.queued_prompt_tokens
        return cls(seen.now_s, pending, seen.waiting)

    def scaled(self, factor: float) -> "Waiting":
        return Waiting(self.at_s, factor * self.prompt_tokens, math.ceil(factor * self.requests))


@dataclass(frozen=True, slots=True)
class Backlog:
    """Waiting work of the last start-up."""

    history: tuple[Waiting, ...] = ()

    def updated(self, seen: Observation, span_s: float) -> "Backlog":
        index = index_at(self.history, seen.now_s - span_s)
        return Backlog((*self.history[index:], Waiting.of(seen)))

    def scaled(self, factor: float) -> "Backlog":
        """The backlog if `factor` times as much had waited at each time."""
        return Backlog(tuple(each.scaled(factor) for each in self.history))

    def standing(self, span_s: float) -> Waiting | None:
        """The least that waited in the last span_s; None if nothing waited at some time of it."""
        first, last = self.history[0], self.history[-1]
        if last.at_s - first.at_s < span_s:
            return None
        tokens = min(each.prompt_tokens for each in self.history)
        requests = min(each.requests for each in self.history)
        return Waiting(last.at_s, tokens, requests) if tokens or requests else None
