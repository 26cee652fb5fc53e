"""Fair shares of engines by tokens, among the tenants of a class: start-time fair queueing.

Each tenant has a virtual time, which grows by the tokens of a request over the tenant's weight when one of
its requests is sent. The tenant with the lowest time is next. One that has been idle starts at the time of
the request that was sent last, so that it has no credit. (Goyal, Vin and Cheng, 1996.)
"""

from dataclasses import dataclass, field

from penstock.core.admission.engine_load import Waiting

# For how long after its last request a tenant counts among those that share engines, in seconds. A tenant
# that sends a request a minute finds the room that the others have to leave for it.
ACTIVE_S = 60.0


@dataclass(slots=True)
class TenantShare:
    """Share of one tenant. prefill_tokens: of its waiting requests.

    owed_tokens: by which its ended requests were longer than estimated; negative if they were shorter.
    """

    weight: int
    virtual_time: float
    active_s: float
    waiting: dict[str, Waiting] = field(default_factory=dict)
    prefill_tokens: float = 0.0
    owed_tokens: float = 0.0


class FairShares:
    """The tenants of a class that were active in the last ACTIVE_S, or have waiting requests."""

    def __init__(self) -> None:
        self._shares: dict[str, TenantShare] = {}  # the one that was active longest ago first
        self._virtual_time = 0.0
        self._weight = 0  # of all
        self._waiting_weight = 0  # of those with waiting requests
        self.prefill_tokens = 0.0  # of all waiting requests
        self.num_waiting = 0

    def add(self, waiting: Waiting, now: float) -> None:
        """Add a waiting request."""
        self._forget(now)
        requester = waiting.requester
        share = self._shares.pop(requester.tenant, None)
        if share is None:
            share = TenantShare(requester.weight, self._virtual_time, now)
            self._weight += share.weight
        if share.weight != requester.weight:
            change = requester.weight - share.weight
            self._weight += change
            self._waiting_weight += change if share.waiting else 0
            share.weight = requester.weight
        if not share.waiting:
            share.virtual_time = max(share.virtual_time, self._virtual_time)
            self._waiting_weight += share.weight
        share.active_s = now
        share.waiting[waiting.request_id] = waiting
        share.prefill_tokens += waiting.prefill_tokens
        self.prefill_tokens += waiting.prefill_tokens
        self.num_waiting += 1
        self._shares[requester.tenant] = share

    def remove(self, waiting: Waiting) -> None:
        """Remove a waiting request."""
        share = self._shares[waiting.requester.tenant]
        del share.waiting[waiting.request_id]
        share.prefill_tokens -= waiting.prefill_tokens
        self.prefill_tokens -= waiting.prefill_tokens
        self.num_waiting -= 1
        if not share.waiting:
            share.prefill_tokens = 0.0  # no error of rounding stays
            self._waiting_weight -= share.weight
        if not self.num_waiting:
            self.prefill_tokens = 0.0

    def charge(self, waiting: Waiting) -> None:
        """Count the tokens of a request that is sent."""
        share = self._shares[waiting.requester.tenant]
        self._virtual_time = max(self._virtual_time, share.virtual_time)
        tokens = waiting.kv_tokens + share.owed_tokens
        share.owed_tokens = min(0.0, tokens)
        share.virtual_time += max(0.0, tokens) / share.weight

    def correct(self, tenant: str, tokens: float) -> None:
        """Count by how much an ended request was longer than estimated, or shorter if negative.

        The tenant's next request is charged for it: so virtual times never go back.
        """
        if share := self._shares.get(tenant):
            share.owed_tokens += tokens

    def virtual_time(self, tenant: str) -> float:
        """Virtual time of a tenant; that of a newcomer if it is not known."""
        share = self._shares.get(tenant)
        return self._virtual_time if share is None else share.virtual_time

    def fraction(self, tenant: str) -> float:
        """Fraction of the engines that a tenant with a waiting request may use while all are busy."""
        return self._shares[tenant].weight / self._weight

    def num_waiting_of(self, tenant: str) -> int:
        """The number of a tenant's requests that wait."""
        share = self._shares.get(tenant)
        return 0 if share is None else len(share.waiting)

    def prefill_tokens_ahead(self, waiting: Waiting) -> float:
        """Prompt tokens that are computed before a newcomer's, if nothing else arrives.

        Other tenants get at most as much for their weight as the newcomer's tenant does.
        """
        requester = waiting.requester
        share = self._shares.get(requester.tenant)
        own, weight = waiting.prefill_tokens, self._waiting_weight
        if share is not None:
            own += share.prefill_tokens
        if share is None or not share.waiting:
            weight += requester.weight
        return min(self.prefill_tokens, own * weight / requester.weight - waiting.prefill_tokens)

    def last_in_turn(self, newcomer: Waiting | None = None) -> Waiting:
        """The request to give up first: the latest of the tenant with the most tokens for its weight.

        newcomer: counted as if it waited. Of equals it is the one.
        """
        candidates = {name: each for name, each in self._shares.items() if each.waiting}
        tokens = {name: each.prefill_tokens / each.weight for name, each in candidates.items()}
        own = "" if newcomer is None else newcomer.requester.tenant
        if newcomer is not None:
            tokens[own] = tokens.get(own, 0.0) + newcomer.prefill_tokens / newcomer.requester.weight
        heaviest = max(tokens, key=lambda name: (tokens[name], name == own))
        waiting = list(candidates[heaviest].waiting.values()) if heaviest in candidates else []
        if newcomer is not None and heaviest == own:
            waiting.append(newcomer)
        return max(reversed(waiting), key=lambda each: each.deadline_s)

    def check(self) -> None:
        """Assert that the sums are those of the tenants."""
        shares = self._shares.values()
        assert self._weight == sum(each.weight for each in shares)
        assert self._waiting_weight == sum(each.weight for each in shares if each.waiting)
        assert self.num_waiting == sum(len(each.waiting) for each in shares)
        tokens = sum(w.prefill_tokens for each in shares for w in each.waiting.values())
        assert abs(self.prefill_tokens - tokens) <= 1e-6 * max(1.0, tokens)

    def _forget(self, now: float) -> None:
        """Forget the tenants that have not been active for a while."""
        while self._shares:
            tenant, share = next(iter(self._shares.items()))
            if share.active_s > now - ACTIVE_S:
                return
            del self._shares[tenant]
            if share.waiting:
                share.active_s = now
                self._shares[tenant] = share
            else:
                self._weight -= share.weight
