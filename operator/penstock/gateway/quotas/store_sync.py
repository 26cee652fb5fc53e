"""Keeps the leases of a gateway in step with the shared store: one call at a time, for all tenants."""

import asyncio
import logging
from collections.abc import Callable

from penstock.core.tenants.lease import NO_DEMAND
from penstock.gateway.quotas.grants import log_unreadable, take_grants
from penstock.gateway.quotas.known_totals import KnownTotals
from penstock.gateway.quotas.ledger import Ledger
from penstock.gateway.quotas.quota_metrics import QuotaMetrics
from penstock.gateway.quotas.store import Store, StoreFailed
from penstock.gateway.quotas.store_call import (
    GATEWAY_TTL_S,
    CountEntry,
    Increments,
    Reply,
    StoreCall,
)
from penstock.gateway.quotas.tenant_account import TenantAccount, TenantAccounts

logger = logging.getLogger(__name__)

# Time between two calls when nobody waits: a gateway that is killed loses this much of the ledger.
FLUSH_INTERVAL_S = 0.5
# Time between two calls while the store is down; and in its first second, or while gateways state what they
# have used meanwhile.
PROBE_INTERVAL_S = 1.0
SETTLE_INTERVAL_S = 0.1
# Tries of a call before the store is taken to be down, and together with those that the gateway itself was
# late for, as its processor was busy: it should not go its own way for that.
NUM_TRIES, MAX_TRIES = 2, 8
# Time between two calls that only take more ahead of need, each of which costs 0.25 ms of processor.
REFILL_INTERVAL_S = 0.02
# Round trips above this say too little about the store's clock.
MAX_CLOCK_ROUND_TRIP_S = 0.02
# Tenants in one call. The store does nothing else meanwhile; an entry takes it some 5 us.
MAX_TENANTS = 500


class StoreSync:
    """Calls the store for a gateway. now: the monotonic clock. wall_clock: seconds since the epoch.

    is_up: whether the last call succeeded; at first the store is taken to be there. num_gateways: that share
    the limits, by the store, as it was when it last was up.
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
        self._calling = (
            asyncio.Lock()
        )  # a second call would get a piece beside that of the first one
        self._answered = asyncio.Event()  # set when the call after the present one has ended
        self._increments: Increments | None = None  # that the store may not have yet
        self._sequence = 0
        self._called_s = self._shared_s = float("-inf")
        self._shared_from_s = 0.0  # by the store's clock
        self._totals = KnownTotals()
        self.is_up = True
        self.num_gateways = 1

    @property
    def is_sharing(self) -> bool:
        """Whether gateways share limits by the store. After it was down they do so from one moment on."""
        return self.is_up and self.store_time_s() >= self._shared_from_s

    @property
    def is_recently_down(self) -> bool:
        """Whether what ran at other gateways when the store went down may still run."""
        return self._now() < self._shared_s + GATEWAY_TTL_S

    def note_totals(self, account: TenantAccount) -> None:
        """Tell an account what others had used by the store's last counts."""
        self._totals.tell(account, self.store_time_s())

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
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self.call()
            # Waiting requests take their grants first: the next call gives back all that nobody has taken.
            await asyncio.sleep(0)

    @property
    def _interval_s(self) -> float:
        """Time until the next call, if nobody waits for it."""
        if self.is_up:
            return FLUSH_INTERVAL_S if self.is_sharing else SETTLE_INTERVAL_S
        is_new = self._now() < self._shared_s + PROBE_INTERVAL_S
        return SETTLE_INTERVAL_S if is_new else PROBE_INTERVAL_S

    async def close(self) -> None:
        """Add all that was used, give all pieces and slots back, and leave the store."""
        if self.is_up and self._increments is not None:
            await self.call()
        if self.is_up:
            await self.call(leaves=True)
        await self._store.close()

    async def call(self, *, leaves: bool = False) -> None:
        """Call the store once. leaves: whether the gateway ends."""
        async with self._calling:
            await self._call(leaves=leaves)

    async def _call(self, *, leaves: bool) -> None:
        answered, self._answered = self._answered, asyncio.Event()
        call = self._make_call(leaves=leaves)
        started_s = self._now()
        try:
            reply = await self._try(call, 1 if leaves or not self.is_up else NUM_TRIES)
        except StoreFailed as failed:
            self._fail(call, str(failed))
        except Exception as error:  # the loop must go on: requests wait for it
            logger.exception("a call of the quota store failed")
            self._fail(call, type(error).__name__)
        except BaseException:  # cancelled: the store may have executed it
            answered.set()
            raise
        else:
            self._succeed(call, reply)
        self._called_s = self._now()
        self._metrics.note_call(self._called_s - started_s, is_failed=not self.is_up)
        answered.set()
        if not self.is_sharing:
            self._answered.set()  # nobody waits for a store that is down
            self._answered = asyncio.Event()

    async def _try(self, call: StoreCall, num_tries: int) -> Reply:
        """Call the store until it answers. Raises StoreFailed."""
        for left in reversed(range(MAX_TRIES)):
            started_s = self._now()
            try:
                reply = await self._store.call(call)
            except StoreFailed as failed:
                num_tries -= not failed.is_late
                if not (left and num_tries):
                    raise
                continue
            ended_s = self._now()
            if ended_s - started_s < MAX_CLOCK_ROUND_TRIP_S or not self._is_clock_known:
                self._offset_s = reply.now_s - (started_s + ended_s) / 2
                self._is_clock_known = True
            return reply
        raise AssertionError("the last try returns or raises")

    def _make_call(self, *, leaves: bool) -> StoreCall:
        now_s, is_sharing = self.store_time_s(), self.is_sharing
        chosen = list(self._accounts.changed.values())[:MAX_TENANTS]
        if self._increments is None:
            self._sequence += 1
            self._increments = Increments(self._sequence, usage=list(self._ledger.drain()))
        call = StoreCall(
            self._increments,
            num_gateways=self.num_gateways,
            was_down=not self.is_up,
            leaves=leaves,
        )
        for tenant, lease in self._accounts.dropped:
            lease.correction(gives_all=True)
            call.counts.append(
                CountEntry(tenant, lease, lease.window, lease.granted, is_final=True)
            )
        for account in chosen:
            # The others have their turn before this one has another
            del self._accounts.changed[account.name]
            self._accounts.changed[account.name] = account
            for lease in account.quota.leases:
                lease.enter(now_s)
                if is_sharing:
                    lease.follow(None, now_s)
            _add_counts(call, account, now_s)
            _add_slots(call, account, now_s)
        return call

    def _succeed(self, call: StoreCall, reply: Reply) -> None:
        self._take_failed_usage(reply)
        is_back, self.is_up = not self.is_up, True
        self._shared_from_s = reply.shared_from_s
        self.num_gateways = (
            reply.num_gateways if self.is_sharing else max(self.num_gateways, reply.num_gateways)
        )
        if self.is_sharing:
            self._shared_s = self._now()
        if is_back:
            logger.info("the quota store answers again")
        self._accounts.dropped = self._accounts.dropped[
            sum(each.is_final for each in call.counts) :
        ]
        take_grants(call, reply, self.num_gateways)
        self._totals.update(reply.totals, reply.now_s)
        if reply.has_lost:
            logger.warning("the quota store has lost data: this gateway states what it has used")
            for account in self._accounts:
                for lease in account.quota.leases:
                    lease.stored = None
                self._accounts.changed[account.name] = account
        self._settle_down()

    def _take_failed_usage(self, reply: Reply) -> None:
        """Keep what the store could not add to the ledger for the next call."""
        increments, self._increments = self._increments, None
        if increments is not None and reply.failed_usage:
            log_unreadable(increments.usage[reply.failed_usage[0]]["key"])
            self._sequence += 1
            usage = [increments.usage[each] for each in reply.failed_usage]
            self._increments = Increments(self._sequence, usage)

    def _settle_down(self) -> None:
        """Leave out idle tenants from now on."""
        for account in list(self._accounts.changed.values()):
            if account.is_idle:
                del self._accounts.changed[account.name]

    def _fail(self, call: StoreCall, problem: str) -> None:
        if self.is_up:
            logger.warning(
                "the quota store does not answer (%s): limits are shared by %d gateways until it does",
                problem,
                self.num_gateways,
            )
        if self.is_sharing:
            self._shared_s = self._now()
        self.is_up = False
        for entry in call.counts:
            entry.lease.stored = None  # the store may have executed it


def _add_counts(call: StoreCall, account: TenantAccount, now_s: float) -> None:
    for lease in account.quota.leases:
        lease.correction(gives_all=call.leaves)
        demand = None if call.leaves else lease.demand(now_s)
        lease.needs.clear()
        if demand is not None or lease.is_to_report:
            call.counts.append(
                CountEntry(
                    account.name, lease, lease.window, lease.granted,
                    demand or NO_DEMAND, is_final=call.leaves,
                )
            )  # fmt: skip


def _add_slots(call: StoreCall, account: TenantAccount, now_s: float) -> None:
    slots = account.slots
    if slots is not None:
        demand = NO_DEMAND
        if call.leaves:
            slots.held = 0
        else:
            demand = slots.demand(now_s)
        call.slots.append((account.name, slots, slots.held, demand))
        slots.num_waiting = 0
