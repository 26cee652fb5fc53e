"""Reserves requests' use of their tenants' limits, over all gateways if there is a shared store."""

from collections.abc import Callable, Iterator

from penstock.core.tenants.limits import Usage
from penstock.core.tenants.quota import Incomplete, Reservation, Shortage, TooLarge
from penstock.core.tenants.slots import SlotLease
from penstock.core.tenants.tenant import Tenant
from penstock.gateway.quotas.ledger import HOUR_S, Ledger, LedgerEntry
from penstock.gateway.quotas.quota_metrics import QuotaMetrics
from penstock.gateway.quotas.store import Store
from penstock.gateway.quotas.store_sync import StoreSync
from penstock.gateway.quotas.tenant_account import TenantAccount, TenantAccounts

# Calls of the store after which a request is refused if the last count, however old, leaves it too little.
# A request whose grant others have taken asks again, while the last count leaves enough for it.
MAX_CALLS = 4


class Quotas:
    """The limits of all tenants at one gateway.

    now: the monotonic clock. wall_clock: seconds since the epoch. num_gateways: that are ready, which share
    the limits while there is no store. retention_s: how long the store keeps an hour of the ledger.
    """

    def __init__(
        self,
        metrics: QuotaMetrics,
        now: Callable[[], float],
        wall_clock: Callable[[], float],
        *,
        store: Store | None = None,
        num_gateways: Callable[[], int] = lambda: 1,
        retention_s: int = 0,
    ) -> None:
        self.accounts = TenantAccounts()
        self.store = store
        self._metrics = metrics
        self._num_gateways = num_gateways
        self._now = now
        self._offset_s = wall_clock() - now()
        self.ledger = Ledger(retention_s)
        self.sync: StoreSync | None = None
        if store is not None:
            self.sync = StoreSync(store, self.accounts, self.ledger, metrics, now, wall_clock)

    def now_s(self) -> float:
        """The present time that windows follow, in seconds since the epoch."""
        return self._now() + self._offset_s if self.sync is None else self.sync.store_time_s()

    def account(self, tenant: Tenant) -> TenantAccount:
        """The account of a tenant, as its Tenant object says now."""
        return self.accounts.of(tenant, self.now_s())

    async def reserve(
        self, account: TenantAccount, model_name: str, usage: Usage
    ) -> Reservation | Shortage | TooLarge:
        """Reserve for a request all that it needs, or nothing. Waits for the store only if it has to."""
        quota, num_calls = account.quota, 0
        while True:
            num_gateways = self._num_sharing()
            if num_gateways is not None and self.sync is not None:
                self.sync.note_totals(account)
            found = quota.reserve(model_name, usage, self.now_s(), num_gateways)
            if not isinstance(found, Incomplete):
                if num_gateways is None and any(each.is_low for each in quota.leases):
                    self._refill()
                return found
            lacking = [lease for lease, amount in found.needs if amount > lease.remaining]
            if lacking and num_calls >= MAX_CALLS:
                last = max(lacking, key=lambda each: each.window.end_s)
                return Shortage(last.limit, last.window.retry_after_s(self.now_s()))
            num_calls += 1
            for lease, amount in found.needs:
                lease.needs.append(amount)
            await self._next_answer(account)

    async def start_running(self, account: TenantAccount) -> bool:
        """Take one of the tenant's slots, if it has a bound. Returns False if none is free."""
        slots = account.slots
        if slots is None:
            return True
        while not self._has_room(account, slots):
            is_local = self._num_sharing() is not None or slots.num_unstored is not None
            if is_local or slots.num_running >= slots.bound:
                return False
            slots.num_waiting += 1
            await self._next_answer(account)
            if slots.is_full and not self._has_room(account, slots):
                return False
        slots.start()
        return True

    def record(self, tenant: str, service: str, adapter: str, usage: Usage) -> None:
        """Count the usage of a request, and enter it in the ledger if there is a store to keep it."""
        self._metrics.count_usage(tenant, service, usage)
        if self.sync is not None:
            hour_s = int(self.now_s()) // HOUR_S * HOUR_S
            self.ledger.add(LedgerEntry(hour_s, tenant, service, adapter), usage)

    def limits_used(self) -> Iterator[tuple[str, str, float]]:
        """Each tenant's limits, and the part of each that is used, as far as this gateway knows."""
        now_s = self.now_s()
        for account in self.accounts:
            for lease in account.quota.leases:
                lease.enter(now_s)
                yield account.name, lease.limit.name, lease.used_ratio

    async def run(self) -> None:
        """Keep in step with the store until cancelled."""
        if self.sync is not None:
            await self.sync.run()

    async def close(self) -> None:
        """Give all back to the store."""
        if self.sync is not None:
            await self.sync.close()

    def _refill(self) -> None:
        if self.sync is not None:
            self.sync.refill()

    def _num_sharing(self) -> int | None:
        """The number of gateways that share the limits because there is no store; None: there is one."""
        if self.sync is None:
            return max(1, self._num_gateways())
        if self.sync.is_sharing:
            return None
        return max(self.sync.num_gateways, self._num_gateways())

    def _has_room(self, account: TenantAccount, slots: SlotLease) -> bool:
        """Whether a request of the tenant may run."""
        num_gateways, sync = self._num_sharing(), self.sync
        if num_gateways is None or sync is None:
            return slots.has_room(num_gateways)
        sync.note_totals(account)
        return slots.has_room(num_gateways, is_recent=sync.is_recently_down)

    async def _next_answer(self, account: TenantAccount) -> None:
        """Wait for the store's next answer, which the account has a part of."""
        assert self.sync is not None  # without it nothing is incomplete
        self.accounts.note_change(account)
        await self.sync.next_answer()
