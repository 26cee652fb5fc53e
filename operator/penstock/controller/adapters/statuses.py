"""Writes the statuses of LoraAdapters that changed, and their Events."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.events import EventRecorder
from penstock.clients.kubernetes.informer import Key, key_of
from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.clients.machine.clock import unix_time
from penstock.controller.adapters.rollouts import SteppedRollout
from penstock.controller.process.failures import Failures
from penstock.controller.process.field_managers import OPERATOR_MANAGER
from penstock.core.adapters.resource import AdapterResource
from penstock.core.adapters.shown_demand import ShownDemand
from penstock.core.fair_queue import FairQueue
from penstock.core.formats.json_merge import if_unchanged
from penstock.core.formats.timestamps import timestamp
from penstock.core.reconcile.adapter_state import AdapterState
from penstock.core.reconcile.adapter_status import (
    POOL_FIELDS,
    adapter_events,
    adapter_status,
    changed_fields,
)
from penstock.errors import Conflict, NotFound

# Statuses that are written at the same time. A new leader, or many new adapters, must not crowd out the
# operator's other requests.
MAX_WRITES = 8


@dataclass(frozen=True, slots=True)
class AdapterEntry:
    """A LoraAdapter and what is known of it. body: as last watched. resource: with the version that serves.

    rollout: None if the service does not take the adapter.
    """

    body: Object
    resource: AdapterResource
    state: AdapterState
    demand: ShownDemand | None
    rollout: SteppedRollout | None = None


@dataclass(frozen=True, slots=True)
class _Written:
    """An adapter as the last write of its status returned it. older: resource versions before that write."""

    body: Object
    older: frozenset[str]


class AdapterStatuses:
    """Writes the statuses that differ from the stored ones, in the background.

    Each adapter has one write at a time. If its state changes meanwhile, only the latest state is written
    next, in its turn. Statuses whose copies changed go first in their namespace. A slow API server does not
    delay the next pass.
    """

    def __init__(self, kube: Kube, failures: Failures) -> None:
        self._kube = kube
        self._failures = failures
        self._events = EventRecorder(kube, OPERATOR_MANAGER)
        self._settled: dict[Key, AdapterEntry] = {}  # whose stored status is up to date
        self._waiting: dict[Key, AdapterEntry] = {}  # that wait for their write
        # The last of those that wait or are being written.
        self._started: dict[Key, AdapterEntry] = {}
        self._queue = FairQueue[Key]()  # those that wait and are not being written
        self._writing: set[Key] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._written: dict[Key, _Written] = {}

    def newest(self, body: Object) -> Object:
        """The adapter after the writes of this process. body: as last watched, perhaps before them."""
        written = self._written.get(key_of(body))
        if written is not None and body["metadata"]["resourceVersion"] in written.older:
            return written.body
        return body

    def update(self, entries: Iterable[AdapterEntry]) -> bool:
        """Start to write the statuses that changed. Returns whether copies of any adapter changed.

        Statuses with outdated copies come first: in all others only numbers change.
        """
        settled: dict[Key, AdapterEntry] = {}
        changed, keys = [], set()
        for entry in entries:
            key = entry.resource.key
            keys.add(key)
            last, started = self._settled.get(key), self._started.get(key)
            if last is not None and _is_same(last, entry) and last.rollout == entry.rollout:
                settled[key] = entry
            elif started is None or not _is_same(started, entry):
                changed.append(entry)
        self._settled = settled
        self._written = {key: each for key, each in self._written.items() if key in keys}
        has_moved = False
        for entry in changed:
            is_shown = _shows_copies(entry)
            has_moved |= not is_shown
            self._start(entry, is_shown)
        return has_moved

    async def close(self) -> None:
        """Cancel the writes that run, and wait for their end."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def _start(self, entry: AdapterEntry, is_shown: bool) -> None:
        """Queue the write of an entry. is_shown: whether its copies are as stored."""
        key = entry.resource.key
        self._waiting[key] = self._started[key] = entry
        if key not in self._writing:
            self._queue.add(key[0], key, is_urgent=not is_shown)
        if len(self._workers) < MAX_WRITES:
            self._workers.add(asyncio.create_task(self._work()))

    async def _work(self) -> None:
        """Write until nothing is queued. An error on one adapter stops no other."""
        while (namespace := self._queue.next_owner()) is not None:
            key = self._queue.start(namespace)
            self._writing.add(key)
            with self._failures.isolate_errors("adapters", *key):
                await self._write(self._waiting.pop(key))
            self._writing.remove(key)
            self._queue.finish(namespace)
            if (latest := self._waiting.get(key)) is not None:
                self._queue.add(key[0], key, is_urgent=not _shows_copies(latest))
            else:
                self._started.pop(key, None)
        if (worker := asyncio.current_task()) is not None:
            self._workers.discard(worker)

    async def _write(self, entry: AdapterEntry) -> None:
        body = self.newest(entry.body)
        stored, now = body.get("status") or {}, timestamp(unix_time())
        rollout = entry.rollout.rollout if entry.rollout else None
        after = adapter_status(entry.resource, entry.state, entry.demand, stored, now, rollout)
        versions = {} if entry.rollout is None else entry.rollout.as_status(stored)
        stepped = (*versions, "fetchedVersions", *(POOL_FIELDS if entry.state.pool else ()))
        if _differs(entry.body, body, stepped):
            return  # computed from the status before the last write; the next pass computes it again
        after |= versions
        changed = changed_fields(stored, after)
        if not changed:
            self._settled[entry.resource.key] = entry
            return
        patch = if_unchanged(body, {"status": changed})
        try:
            written = await self._kube.merge(
                LORA_ADAPTERS, *entry.resource.key, patch, manager=OPERATOR_MANAGER, sub="status"
            )
        except (NotFound, Conflict):
            return  # the next pass tries again, from the change that the watch reports
        self._note(entry.resource.key, body, written)
        for kind, reason, message in adapter_events(stored, after):
            await self._events.post(body, kind, reason, message)

    def _note(self, key: Key, before: Object, written: Object) -> None:
        last, older = self._written.get(key), {before["metadata"]["resourceVersion"]}
        if last is not None and last.body is before:
            older |= last.older
        self._written[key] = _Written(written, frozenset(older))


def _is_same(last: AdapterEntry, entry: AdapterEntry) -> bool:
    """Whether two entries are the same apart from the step of the rollout, which contains times."""
    return last.body is entry.body and last.state == entry.state and _shown(last) == _shown(entry)


def _shown(entry: AdapterEntry) -> tuple[str, float | None] | None:
    demand = entry.demand
    return None if demand is None else (demand.requests_per_s, demand.last_used_s)


def _shows_copies(entry: AdapterEntry) -> bool:
    """Whether the stored status lists the same copies as the entry."""
    stored = (entry.body.get("status") or {}).get("instances") or []
    shown = {(each["podName"], each["state"], each.get("revision", "")) for each in stored}
    return shown == {(each.pod, each.state, each.revision) for each in entry.state.instances}


def _differs(before: Object, after: Object, names: Iterable[str]) -> bool:
    """Whether fields of the status of two versions of an object differ."""
    if before is after:
        return False
    first, second = before.get("status") or {}, after.get("status") or {}
    return any(first.get(name) != second.get(name) for name in names)
