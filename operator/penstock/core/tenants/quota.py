"""Reserves what a request will use of all limits of its tenant, and settles it by what was used."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from penstock.core.tenants.lease import Lease
from penstock.core.tenants.limits import NO_USAGE, Usage, Window
from penstock.core.tenants.tenant import Tenant, UsageLimit

# Output tokens of a request that does not bound them, before there is a mean.
ASSUMED_OUTPUT_TOKENS = 256
# Weight of a request in the mean: it follows a change within some twenty requests.
MEAN_WEIGHT = 0.05


@dataclass(frozen=True, slots=True)
class Shortage:
    """Limits that have too little left. retry_after_s: until the window that has room.

    limit: the one whose window ends last. others: that would refuse the request too.
    """

    limit: UsageLimit
    retry_after_s: int
    others: tuple[UsageLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A request that needs more than the whole limit. amount: what it needs."""

    limit: UsageLimit
    amount: int


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Pieces that have too little for a request, while the store may have more: each with the need."""

    needs: Sequence[tuple[Lease, int]]


class Reservation:
    """Amounts that a request has reserved, until `settle`. usage: the estimate."""

    __slots__ = ("_parts", "usage")

    def __init__(self, usage: Usage, parts: Sequence[tuple[Lease, Window]]) -> None:
        self.usage = usage
        self._parts = parts

    def settle(self, used: Usage) -> None:
        """Count what the request has used instead of the estimate. Further calls change nothing."""
        parts, self._parts = self._parts, ()
        for lease, window in parts:
            resource = lease.limit.resource
            lease.settle(window, used.of(resource) - self.usage.of(resource))

    def cancel(self) -> None:
        """Give all back: no engine has worked for the request."""
        self.settle(NO_USAGE)


class TenantQuota:
    """The leases of a tenant's limits at one gateway, and the lengths of its answers."""

    def __init__(self, tenant: Tenant, now_s: float) -> None:
        self.tenant = tenant
        self.leases = [Lease.of(each, now_s) for each in tenant.limits]
        self._mean_output_tokens: dict[str, float] = {}  # by model name

    def update(self, tenant: Tenant, now_s: float) -> list[Lease]:
        """Follow a change of the tenant. Returns the leases of limits that it has no longer.

        A limit of another size keeps its lease, into which open requests settle.
        """
        if tenant is self.tenant:
            return []
        old = {_identity(each.limit): each for each in self.leases}
        self.tenant = tenant
        self.leases = []
        for limit in tenant.limits:
            lease = old.pop(_identity(limit), None) or Lease.of(limit, now_s)
            lease.limit = limit
            self.leases.append(lease)
        return list(old.values())

    def reserve(
        self, model_name: str, usage: Usage, now_s: float, num_gateways: int | None
    ) -> Reservation | Shortage | TooLarge | Incomplete:
        """Reserve for a request all that it needs, or nothing.

        num_gateways: that share the limits while the store is down; None: the store is there.
        """
        chosen: list[tuple[Lease, int]] = []
        short: list[tuple[Lease, int]] = []
        for lease in self.leases:
            limit = lease.limit
            if limit.model_name and limit.model_name != model_name:
                continue
            lease.enter(now_s)
            lease.follow(num_gateways, now_s)
            amount = usage.of(limit.resource)
            if amount > limit.limit:
                return TooLarge(limit, amount)
            chosen.append((lease, amount))
            if amount > lease.available and not (lease.is_local and self._admits_beyond_share):
                short.append((lease, amount))
        if short:
            return _refusal(short, now_s)
        for lease, amount in chosen:
            lease.reserve(amount)
        return Reservation(usage, [(lease, lease.window) for lease, _ in chosen])

    def assume_output_tokens(self, model_name: str, prompt_tokens: int) -> int:
        """Return the output tokens to reserve for a request that does not bound them.

        The mean of the tenant's requests for the model, but never more than a limit allows at all.
        """
        assumed = ceil(self._mean_output_tokens.get(model_name, ASSUMED_OUTPUT_TOKENS))
        for limit in self.tenant.limits:
            if limit.resource == "OutputTokens":
                assumed = min(assumed, limit.limit)
            elif limit.resource == "Tokens":
                assumed = min(assumed, max(0, limit.limit - prompt_tokens))
        return assumed

    def observe_output_tokens(self, model_name: str, output_tokens: int) -> None:
        """Learn from a request that has ended."""
        mean = self._mean_output_tokens.get(model_name, ASSUMED_OUTPUT_TOKENS)
        self._mean_output_tokens[model_name] = mean + MEAN_WEIGHT * (output_tokens - mean)

    def tightest(self, model_name: str) -> tuple[Lease | None, Lease | None]:
        """Return the leases with the least left: of those that count requests, and of those of tokens.

        None: no limit of the model counts these.
        """
        requests = tokens = None
        for lease in self.leases:
            limit = lease.limit
            if limit.model_name and limit.model_name != model_name:
                continue
            if limit.resource == "Requests":
                if requests is None or lease.remaining < requests.remaining:
                    requests = lease
            elif tokens is None or lease.remaining < tokens.remaining:
                tokens = lease
        return requests, tokens

    @property
    def _admits_beyond_share(self) -> bool:
        return self.tenant.failure_mode == "Admit"


def _identity(limit: UsageLimit) -> UsageLimit:
    return replace(limit, limit=0)


def _refusal(short: Sequence[tuple[Lease, int]], now_s: float) -> Shortage | Incomplete:
    """The limit whose window ends last of those that have too little, if nothing can be taken."""
    exhausted = [
        lease for lease, amount in short if lease.is_local or lease.is_exhausted(amount, now_s)
    ]
    if not exhausted:
        return Incomplete(short)
    last = max(exhausted, key=lambda each: each.window.end_s)
    others = tuple(each.limit for each in exhausted if each is not last)
    return Shortage(last.limit, last.window.retry_after_s(now_s), others)
