"""The store's counts of what all gateways use, of limits that this gateway may not have used itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.gateway.quotas.store_call import count_key, slots_key
from penstock.gateway.quotas.tenant_account import TenantAccount

# Number of counts at which those of windows that have ended are dropped.
MIN_CLEANED = 1000
# Shortest interval that growth is measured over. Requests come in bursts.
MIN_GROWTH_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class KnownTotal:
    """A count. counted_s: when the store had it. growth: per second, since there was another count."""

    total: int
    counted_s: float
    growth: float
    last_total: int
    last_s: float

    def followed_by(self, total: int, now_s: float) -> "KnownTotal":
        """The count with the next one."""
        elapsed_s = now_s - self.last_s
        if elapsed_s < MIN_GROWTH_INTERVAL_S:
            return KnownTotal(total, now_s, self.growth, self.last_total, self.last_s)
        growth = max(0.0, (total - self.last_total) / elapsed_s)
        return KnownTotal(total, now_s, growth, total, now_s)


class KnownTotals:
    """Counts by key, as the store last reported them."""

    def __init__(self) -> None:
        self._totals: dict[str, KnownTotal] = {}
        self._max_totals = MIN_CLEANED

    def update(self, totals: Mapping[str, int], now_s: float) -> None:
        """Add what has changed."""
        for key, total in totals.items():
            last = self._totals.get(key, KnownTotal(total, now_s, 0.0, total, now_s))
            self._totals[key] = last.followed_by(total, now_s)
        if len(self._totals) > self._max_totals:
            self._totals = {
                key: total for key, total in self._totals.items() if _is_present(key, now_s)
            }
            self._max_totals = max(MIN_CLEANED, 2 * len(self._totals))

    def tell(self, account: TenantAccount, now_s: float) -> None:
        """Tell a tenant's leases and slots what the store last counted."""
        for lease in account.quota.leases:
            lease.enter(now_s)
            known = self._totals.get(count_key(account.name, lease))
            if known is not None:
                lease.note_total(known.total, known.growth, known.counted_s)
        if account.slots is not None:
            known = self._totals.get(slots_key(account.name))
            if known is not None:
                account.slots.note_total(known.total)


def _is_present(key: str, now_s: float) -> bool:
    end = key.rpartition(":")[2]
    return not end.isdigit() or int(end) > now_s
