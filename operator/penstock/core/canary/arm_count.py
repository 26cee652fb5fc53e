"""What came of the requests that one engine was given, counted as a canary's judge wants it."""

import math

from penstock.core.canary.evidence import (
    NUM_AHEADS,
    NUM_BINS,
    NUM_TPOT_BINS,
    Arm,
    ahead_bin_of,
    bin_of,
    tpot_bin_of,
)
from penstock.core.canary.moments import NOTHING, Moments
from penstock.core.canary.tenants import MAX_TENANTS, NOBODY, OTHERS, Tenant

# Clocks are no finer, and a logarithm needs a number above zero.
LEAST_S = 1e-6
MISSED, MET = Moments(1, 1.0, 1.0), Moments(1)


class ArmCount:
    """Of one engine pod, since this process began to count."""

    def __init__(self) -> None:
        self.requests = self._errors = self._violations = self._empty_outputs = 0
        self._prompt_tokens = self._cached_tokens = 0
        self._ttft = [NOTHING] * NUM_BINS
        self._tpot = [NOTHING] * NUM_TPOT_BINS
        self._overall = self._output = NOTHING
        self._missed = [NOTHING] * NUM_AHEADS
        self._tenants: dict[str, Tenant] = {}

    def failed(self, tenant: str | None = None) -> None:
        """tenant: None where tenants are not told apart."""
        self._add(tenant, Tenant(requests=1, errors=1))
        self.requests += 1
        self._errors += 1
        self._violations += 1

    def ended(
        self,
        output_tokens: int,
        ahead: int,
        *,
        is_empty: bool,
        violates: bool,
        tenant: str | None = None,
    ) -> None:
        """ahead: requests that the engine had not begun to answer when it was given this one."""
        self._add(tenant, Tenant(requests=1))
        self.requests += 1
        self._empty_outputs += is_empty
        self._violations += violates
        self._output = _with(self._output, output_tokens)
        bin_ = ahead_bin_of(ahead)
        self._missed[bin_] = self._missed[bin_].plus(MISSED if violates else MET)

    def timed(
        self,
        prompt_tokens: int,
        ahead: int,
        beside: float,
        ttft_s: float,
        tpot_s: float | None,
        *,
        overall_s: float,
        tenant: str | None = None,
    ) -> None:
        """ahead: as of `ended`. beside: those and the ones that the engine was answering, the mean of then
        and of the end. overall_s: ttft_s and what the request waited before. tpot_s: None of one token."""
        bin_ = bin_of(prompt_tokens, ahead)
        self._overall = _with(self._overall, overall_s)
        self._ttft[bin_] = _with(self._ttft[bin_], ttft_s)
        if tpot_s is not None:
            bin_ = tpot_bin_of(prompt_tokens, beside)
            self._tpot[bin_] = _with(self._tpot[bin_], tpot_s)
        tpot = NOTHING if tpot_s is None else _with(NOTHING, tpot_s)
        self._add(tenant, Tenant(ttft=_with(NOTHING, ttft_s), tpot=tpot))

    def told(self, prompt_tokens: int, cached_tokens: int) -> None:
        self._prompt_tokens += prompt_tokens
        self._cached_tokens += cached_tokens

    def arm(self) -> Arm:
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
        self._tenants[name] = self._tenants.get(name, NOBODY).plus(more)


def _with(moments: Moments, value: float) -> Moments:
    log = math.log(max(value, LEAST_S))
    return Moments(moments.n + 1, moments.total + log, moments.squares + log * log)
