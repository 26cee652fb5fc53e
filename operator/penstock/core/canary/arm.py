"""Counts of one arm of a canary's comparison: outcomes and latencies as sufficient statistics."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from operator import add, sub
from typing import Any

from penstock.core.canary import tenants
from penstock.core.canary.bins import (
    EMPTY_BINS,
    EMPTY_QUEUE_BINS,
    EMPTY_TPOT_BINS,
    NUM_BINS,
    NUM_QUEUE_BINS,
    NUM_TPOT_BINS,
    Binned,
    queue_bin,
    tpot_bin,
    ttft_bin,
)
from penstock.core.canary.moments import NOTHING, Moments
from penstock.core.canary.tenants import MAX_TENANTS, NO_TENANT_DATA, OTHERS, Tenant, Tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Counts and latency moments of one arm of the comparison. Field names are sent by gateways and stored.

    requests: finished, with failed ones. violations: requests that missed an objective, with failed ones.
    empty_outputs: successful answers without text. ttft: log seconds from the engine's receipt to the first
    token, by ttft_bin. tpot: log seconds per output token, by tpot_bin. overall: log seconds from the
    gateway's receipt to the first token, or to an answer that is not streamed. output: log of output tokens.
    missed: 1 for an answer that missed an objective, 0 for others, by queue_bin. prompt_tokens,
    cached_tokens: for the prefix-cache hit rate. tenants: by name, if the service distinguishes tenants.
    """

    requests: int = 0
    errors: int = 0
    violations: int = 0
    empty_outputs: int = 0
    ttft: Binned = EMPTY_BINS
    tpot: Binned = EMPTY_TPOT_BINS
    overall: Moments = NOTHING
    output: Moments = NOTHING
    missed: Binned = EMPTY_QUEUE_BINS
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tenants: Tenants = field(default_factory=dict)

    def plus(self, other: "Arm") -> "Arm":
        return self._combined(other, add, Moments.plus, tenants.plus)

    def increase_over(self, earlier: "Arm | None") -> "Arm":
        """The increase over an earlier reading; everything if the counters were reset in between."""
        if earlier is None or any(b > a for a, b in zip(self._n, earlier._n, strict=True)):
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
    def _n(self) -> tuple[int, ...]:
        """All counters that only grow until they are reset."""
        binned = (each for name in BINNED for each in getattr(self, name))
        moments = (*binned, *(getattr(self, name) for name in MOMENTS))
        return *(getattr(self, name) for name in COUNTERS), *(each.n for each in moments)


COUNTERS, MOMENTS, BINNED = (
    tuple(each.name for each in fields(Arm) if each.type == kind) for kind in (int, Moments, Binned)
)
"""Fields of an Arm, by kind."""
NO_REQUESTS = Arm()

# Lower bound of recorded latencies, s: the clock's resolution, and logarithms need a positive number.
MIN_LATENCY_S = 1e-6
MISSED, MET = Moments(1, 1.0, 1.0), Moments(1)


class ArmCounter:
    """Cumulative counts of one engine pod since this process started to count."""

    def __init__(self) -> None:
        self.requests = self._errors = self._violations = self._empty_outputs = 0
        self._prompt_tokens = self._cached_tokens = 0
        self._ttft = [NOTHING] * NUM_BINS
        self._tpot = [NOTHING] * NUM_TPOT_BINS
        self._overall = self._output = NOTHING
        self._missed = [NOTHING] * NUM_QUEUE_BINS
        self._tenants: dict[str, Tenant] = {}

    def record_failure(self, tenant: str | None = None) -> None:
        """Count a failed request. tenant: None if the service does not distinguish tenants."""
        self._add(tenant, Tenant(requests=1, errors=1))
        self.requests += 1
        self._errors += 1
        self._violations += 1

    def record_completion(
        self,
        output_tokens: int | None,
        ahead: int,
        *,
        is_empty: bool,
        violates: bool,
        tenant: str | None = None,
    ) -> None:
        """Count an answered request.

        output_tokens: None of an API that generates none. ahead: requests that the engine had not started to
        answer when it received this one. is_empty: the answer has no text. violates: a latency objective was
        missed.
        """
        self._add(tenant, Tenant(requests=1))
        self.requests += 1
        self._empty_outputs += is_empty
        self._violations += violates
        if output_tokens is not None:
            self._output = _with(self._output, output_tokens)
        bin_ = queue_bin(ahead)
        self._missed[bin_] = self._missed[bin_].plus(MISSED if violates else MET)

    def record_latency(
        self,
        prompt_tokens: int,
        ahead: int,
        concurrent: float,
        ttft_s: float,
        tpot_s: float | None,
        *,
        overall_s: float,
        tenant: str | None = None,
    ) -> None:
        """Record the latencies of an answer.

        ahead: as in record_completion. concurrent: unfinished requests of the engine, the mean of start and
        end of the answer. ttft_s: since the engine received the request. overall_s: since the gateway did.
        tpot_s: None for an answer of one token.
        """
        bin_ = ttft_bin(prompt_tokens, ahead)
        self._overall = _with(self._overall, overall_s)
        self._ttft[bin_] = _with(self._ttft[bin_], ttft_s)
        if tpot_s is not None:
            bin_ = tpot_bin(prompt_tokens, concurrent)
            self._tpot[bin_] = _with(self._tpot[bin_], tpot_s)
        tpot = NOTHING if tpot_s is None else _with(NOTHING, tpot_s)
        self._add(tenant, Tenant(ttft=_with(NOTHING, ttft_s), tpot=tpot))

    def record_answer_time(self, overall_s: float) -> None:
        """Record the time of an answer that was not streamed, since the gateway received its request."""
        self._overall = _with(self._overall, overall_s)

    def record_cached_tokens(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Record the tokens of a prompt, and those of them that the prefix cache held."""
        self._prompt_tokens += prompt_tokens
        self._cached_tokens += cached_tokens

    def snapshot(self) -> Arm:
        """The counts so far."""
        return Arm(
            requests=self.requests,
            errors=self._errors,
            violations=self._violations,
            empty_outputs=self._empty_outputs,
            ttft=tuple(self._ttft),
            tpot=tuple(self._tpot),
            overall=self._overall,
            output=self._output,
            missed=tuple(self._missed),
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            tenants=dict(self._tenants),
        )

    def _add(self, tenant: str | None, more: Tenant) -> None:
        if tenant is None:
            return
        has_room = tenant in self._tenants or len(self._tenants) < MAX_TENANTS - 1
        name = tenant if has_room else OTHERS
        self._tenants[name] = self._tenants.get(name, NO_TENANT_DATA).plus(more)


def _with(moments: Moments, value: float) -> Moments:
    log = math.log(max(value, MIN_LATENCY_S))
    return Moments(moments.n + 1, moments.total + log, moments.squares + log * log)
