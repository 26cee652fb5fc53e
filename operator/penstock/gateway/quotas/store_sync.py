"""Keeps the leases of a gateway in step with the shared store: one call at a time, for all tenants."""

import asyncio
import logging
from collections.abc import Callable

from penstock.core.tenants.lease import NO_DEMAND, Lease
from penstock.gateway.quotas.batch import Batch, Increments, Reply
from penstock.gateway.quotas.ledger import Ledger
from penstock.gateway.quotas.quota_metrics import QuotaMetrics
from penstock.gateway.quotas.store import Store, StoreFailed
from penstock.gateway.quotas.tenant_account import TenantAccount, TenantAccounts

logger = logging.getLogger(__name__)

# Time between two calls when nobody waits: a gateway that is killed loses this much of the ledger.
FLUSH_INTERVAL_S = 0.5
# Time between two calls while the store is down.
PROBE_INTERVAL_S = 1.0
# Time between two calls that only take more ahead of need, each of which costs 0.25 ms of processor.
REFILL_INTERVAL_S = 0.02
# Round trips above this say too little about the store's clock.
MAX_CLOCK_ROUND_TRIP_S = 0.02
# Tenants in one call. The store does nothing else meanwhile; an entry takes it some 5 us.
MAX_TENANTS = 500


class StoreSync:
    """Calls the store for a gateway. now: the monotonic clock. wall_clock: seconds since the epoch.

    is_up: whether the last call succeeded; at first the store is taken to be there. num_gateways: that share
    the limits, by the store.
    """

    def __init__(
        self,
        store: Store,
        accounts: TenantAccounts,
        ledger: Ledger,
        metrics: QuotaMetrics,
        now: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._ledger = ledger
        self._metrics = metrics
        self._now = now
        self._offset_s = wall_clock() - now()
        self._is_clock_known = False
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()  # set when the call after the present one has ended
        self._increments: Increments | None = None  # that the store may not have yet
        self._sequence = 0
        self._called_s = float("-inf")
        self.is_up = True
        self.num_gateways = 1

    def store_time_s(self) -> float:
        """The present time by the store's clock, which all gateways use, in seconds since the epoch."""
        return self._now() + self._offset_s

    async def next_answer(self) -> None:
        """Wait until the store has answered a call with all that is wanted now, or is down."""
        answered = self._answered
        self._wake.set()
        await answered.wait()

    def refill(self) -> None:
        """Call the store soon, as a piece runs low."""
        if self._now() > self._called_s + REFILL_INTERVAL_S:
            self._wake.set()

    async def run(self) -> None:
        """Call the store until cancelled."""
        task = asyncio.current_task()
        # The client of Redis loses a cancellation that comes just as a command is sent (asyncio.wait_for)
        while task is not None and not task.cancelling():
            interval_s = FLUSH_INTERVAL_S if self.is_up else PROBE_INTERVAL_S
            try:
                async with asyncio.timeout(interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self.call()
            # Those that waited take what they got: the next call gives back what nobody has
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Add all that was used, give all pieces and slots back, and leave the store."""
        if self.is_up and self._increments is not None:
            await self.call()
        if self.is_up:
            await self.call(leaves=True)
        await self._store.close()

    async def call(self, *, leaves: bool = False) -> None:
        """Call the store once. leaves: whether the gateway ends."""
        answered, self._answered = self._answered, asyncio.Event()
        batch = self._make_batch(leaves=leaves)
        started_s = self._now()
        try:
            reply = await self._store.call(batch)
        except StoreFailed as failed:
            self._fail(str(failed))
        except Exception as error:  # the loop must go on: requests wait for it
            logger.exception("a call of the quota store failed")
            self._fail(type(error).__name__)
        except BaseException:  # cancelled: the store may have executed it
            answered.set()
            raise
        else:
            self._succeed(batch, reply, started_s)
        self._called_s = self._now()
        self._metrics.note_call(self._called_s - started_s, is_failed=not self.is_up)
        answered.set()
        if not self.is_up:
            self._answered.set()  # nobody waits for a store that is down
            self._answered = asyncio.Event()

    def _make_batch(self, *, leaves: bool) -> Batch:
        now_s = self.store_time_s()
        chosen = list(self._accounts.changed.values())[:MAX_TENANTS]
        if self._increments is None:
            self._increments = self._collect(chosen, now_s, gives_all=leaves)
        batch = Batch(self._increments, leaves=leaves)
        for account in chosen:
            # The others have their turn before this one has another
            del self._accounts.changed[account.name]
            self._accounts.changed[account.name] = account
            _add_demand(batch, account, now_s, leaves=leaves)
        return batch

    def _collect(self, chosen: list[TenantAccount], now_s: float, *, gives_all: bool) -> Increments:
        """The amounts that the store does not have yet, as the next ones in sequence."""
        self._sequence += 1
        increments = Increments(self._sequence, usage=list(self._ledger.drain()))
        for account in chosen:
            for lease in account.quota.leases:
                lease.enter(now_s)
                _add_correction(increments, account.name, lease, gives_all=gives_all)
        for tenant, lease in self._accounts.dropped:
            _add_correction(increments, tenant, lease, gives_all=True)
        self._accounts.dropped.clear()
        return increments

    def _succeed(self, batch: Batch, reply: Reply, started_s: float) -> None:
        ended_s = self._now()
        self._increments = None
        self.num_gateways = reply.num_gateways
        if ended_s - started_s < MAX_CLOCK_ROUND_TRIP_S or not self._is_clock_known:
            self._offset_s = reply.now_s - (started_s + ended_s) / 2
            self._is_clock_known = True
        if not self.is_up:
            logger.info("the quota store answers again")
            self.is_up = True
            for account in self._accounts:
                for lease in account.quota.leases:
                    lease.go_shared()
        of_takes, of_slots = reply.grants[: len(batch.takes)], reply.grants[len(batch.takes) :]
        for (_, lease, window, _), (granted, total) in zip(batch.takes, of_takes, strict=True):
            if granted >= 0 and lease.window == window:
                lease.take(granted, total, reply.now_s)
        for (_, slots, _), (granted, total) in zip(batch.slots, of_slots, strict=True):
            slots.take(granted, total)
        self._settle_down(is_new=reply.is_new)

    def _settle_down(self, *, is_new: bool) -> None:
        """Leave out idle tenants from now on. is_new: whether the store had forgotten this gateway."""
        for account in list(self._accounts.changed.values()):
            if account.is_idle:
                del self._accounts.changed[account.name]
        if is_new and self._sequence > 1:
            self._accounts.changed |= {each.name: each for each in self._accounts}

    def _fail(self, problem: str) -> None:
        if self.is_up:
            logger.warning(
                "the quota store does not answer (%s): limits are shared by %d gateways until it does",
                problem,
                self.num_gateways,
            )
        self.is_up = False


def _add_demand(batch: Batch, account: TenantAccount, now_s: float, *, leaves: bool) -> None:
    if leaves:
        if account.slots is not None:
            account.slots.held = 0
            batch.slots.append((account.name, account.slots, NO_DEMAND))
        return
    for lease in account.quota.leases:
        demand = lease.demand(now_s)
        lease.needs.clear()
        if demand is not None:
            batch.takes.append((account.name, lease, lease.window, demand))
    slots = account.slots
    if slots is not None:
        batch.slots.append((account.name, slots, slots.demand(now_s)))
        slots.num_waiting = 0


def _add_correction(increments: Increments, tenant: str, lease: Lease, *, gives_all: bool) -> None:
    change = lease.correction(gives_all=gives_all)
    if change:
        increments.add_count(tenant, lease, change)
