"""Counts of one arm of a canary's comparison: outcomes and latencies as sufficient statistics."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import add, sub
from typing import Any

from penstock.core.canary import tenants
from penstock.core.canary.bins import (
    EMPTY_BINS,
    EMPTY_QUEUE_BINS,
    EMPTY_TPOT_BINS,
    Binned,
    queue_bin,
    tpot_bin,
    ttft_bin,
)
from penstock.core.canary.moments import NOTHING, Moments
from penstock.core.canary.tenants import MAX_TENANTS, NO_TENANT_DATA, OTHERS, TenantCounts, Tenants

# Lower bound of recorded latencies, s: the clock's resolution, and logarithms need a positive number.
MIN_LATENCY_S = 1e-6
MISSED, MET = Moments(1, 1.0, 1.0), Moments(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answered request. What is None is not known, and is not counted.

    No field has a default, so that mypy names the places that do not measure a new one.
    """

    output_tokens: int | None  # empty (None) for an API that generates no tokens
    is_empty: bool  # it has no text
    violates: bool  # a latency objective was missed
    ahead: int  # requests that the engine had not started to answer when it received this one
    # Unfinished requests of the engine, the mean of start and end of the answer
    concurrent: float
    prompt_tokens: int
    cached_tokens: int | None
    ttft_s: float | None  # from the engine's receipt to the first token, of a stream
    tpot_s: float | None  # per output token, of a stream of two tokens or more
    # seconds from the gateway's receipt to the first token, or to an answer that is not streamed
    overall_s: float | None


# An answer of which nothing is known.
UNMEASURED = Answer(
    output_tokens=None,
    is_empty=False,
    violates=False,
    ahead=0,
    concurrent=0.0,
    prompt_tokens=0,
    cached_tokens=None,
    ttft_s=None,
    tpot_s=None,
    overall_s=None,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Counts and latency moments of one arm of the comparison. Field names are sent by gateways and stored.

    No field has a default: a report or a record that lacks one is of another version, and is not read.
    """

    requests: int  # finished, with failed ones
    errors: int
    violations: int  # requests that missed an objective, with failed ones
    empty_outputs: int
    # Moments of the logarithms of Answer's ttft_s, tpot_s, overall_s, output_tokens; ttft and tpot per bin
    # (bins.py)
    ttft: Binned
    tpot: Binned
    overall: Moments
    output: Moments
    missed: Binned  # 1 for an answer that missed an objective, 0 for others, by queue_bin
    # prompt_tokens, cached_tokens: for the prefix-cache hit rate
    prompt_tokens: int
    cached_tokens: int
    tenants: Tenants  # by name, if the service distinguishes tenants

    def plus(self, other: "Arm") -> "Arm":
        return self._combined(other, add, Moments.plus, tenants.plus)

    def increase_over(self, earlier: "Arm | None") -> "Arm":
        """The increase over an earlier reading; everything if the counters were reset in between."""
        if earlier is None or any(
            b > a for a, b in zip(self._monotone_counters, earlier._monotone_counters, strict=True)
        ):
            return self
        return self._combined(earlier, sub, Moments.increase_over, tenants.increase_over)

    def _combined(
        self,
        other: "Arm",
        counters: Callable[[int, int], int],
        moments: Callable[[Moments, Moments], Moments],
        by_tenant: Callable[[Tenants, Tenants], Tenants],
    ) -> "Arm":
        """Combine each field with the other arm's, by the type of the field."""

        def by_bin(left: Binned, right: Binned) -> Binned:
            return tuple(moments(a, b) for a, b in zip(left, right, strict=True))

        combine: dict[Any, Callable[[Any, Any], Any]] = {
            int: counters, Moments: moments, Binned: by_bin, Tenants: by_tenant
        }  # fmt: skip
        return Arm(
            **{
                each.name: combine[each.type](getattr(self, each.name), getattr(other, each.name))
                for each in fields(self)
            }
        )

    def with_bounded_tenants(self) -> "Arm":
        """A copy with at most MAX_TENANTS tenants."""
        return replace(self, tenants=tenants.fold_tenants(self.tenants))

    @property
    def _monotone_counters(self) -> tuple[int, ...]:
        """All counters that only grow until they are reset."""
        binned = (each for name in BINNED for each in getattr(self, name))
        moments = (*binned, *(getattr(self, name) for name in MOMENTS))
        return *(getattr(self, name) for name in COUNTERS), *(each.n for each in moments)


COUNTERS, MOMENTS, BINNED = (
    tuple(each.name for each in fields(Arm) if each.type == kind) for kind in (int, Moments, Binned)
)
"""Fields of an Arm, by kind."""
NO_REQUESTS = Arm(
    requests=0,
    errors=0,
    violations=0,
    empty_outputs=0,
    ttft=EMPTY_BINS,
    tpot=EMPTY_TPOT_BINS,
    overall=NOTHING,
    output=NOTHING,
    missed=EMPTY_QUEUE_BINS,
    prompt_tokens=0,
    cached_tokens=0,
    tenants={},
)


class ArmCounter:
    """Cumulative counts of one arm since this process started to count."""

    def __init__(self) -> None:
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._moments = dict.fromkeys(MOMENTS, NOTHING)
        self._binned = {name: list(getattr(NO_REQUESTS, name)) for name in BINNED}
        self._tenants: dict[str, TenantCounts] = {}

    def record_failure(self, tenant: str | None = None) -> None:
        """Count a failed request. tenant: None if the service does not distinguish tenants."""
        self._count(requests=1, errors=1, violations=1)
        self._add_to_tenant(tenant, TenantCounts(requests=1, errors=1))

    def record_answer(self, answer: Answer, tenant: str | None = None) -> None:
        """Count an answered request. tenant: None if the service does not distinguish tenants."""
        self._count(requests=1, violations=answer.violates, empty_outputs=answer.is_empty)
        if answer.cached_tokens is not None:
            self._count(prompt_tokens=answer.prompt_tokens, cached_tokens=answer.cached_tokens)
        ttft, tpot = _log(answer.ttft_s), _log(answer.tpot_s)
        self._add_to_bin("ttft", ttft_bin(answer.prompt_tokens, answer.ahead), ttft)
        self._add_to_bin("tpot", tpot_bin(answer.prompt_tokens, answer.concurrent), tpot)
        self._add("overall", _log(answer.overall_s))
        self._add("output", _log(answer.output_tokens))
        self._add_to_bin("missed", queue_bin(answer.ahead), MISSED if answer.violates else MET)
        self._add_to_tenant(tenant, TenantCounts(requests=1, ttft=ttft, tpot=tpot))

    def snapshot(self) -> Arm:
        """The counts so far."""
        counts: dict[str, Any] = {
            **self._counters,
            **self._moments,
            **{name: tuple(bins) for name, bins in self._binned.items()},
        }
        return Arm(**counts, tenants=dict(self._tenants))

    def _count(self, **events: int) -> None:
        for name, number in events.items():
            self._counters[name] += number

    def _add(self, name: str, value: Moments) -> None:
        self._moments[name] = self._moments[name].plus(value)

    def _add_to_bin(self, name: str, index: int, value: Moments) -> None:
        bins = self._binned[name]
        bins[index] = bins[index].plus(value)

    def _add_to_tenant(self, tenant: str | None, more: TenantCounts) -> None:
        if tenant is None:
            return
        has_room = tenant in self._tenants or len(self._tenants) < MAX_TENANTS - 1
        name = tenant if has_room else OTHERS
        self._tenants[name] = self._tenants.get(name, NO_TENANT_DATA).plus(more)


def _log(value: float | None) -> Moments:
    """The moments of one value's logarithm."""
    if value is None:
        return NOTHING
    log = math.log(max(value, MIN_LATENCY_S))
    return Moments(1, log, log * log)
