"""Writes the statuses of LoraAdapters that changed, and their Events."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.clients.clock import unix_time
from penstock.clients.events import EventRecorder
from penstock.clients.informer import Key
from penstock.clients.kube import Kube, Object
from penstock.clients.resources import LORA_ADAPTERS
from penstock.controller.adapter_rollouts import SteppedRollout
from penstock.controller.failures import Failures
from penstock.controller.plan_writer import OPERATOR_MANAGER
from penstock.core.adapters.resource import AdapterResource
from penstock.core.adapters.shown_demand import ShownDemand
from penstock.core.formats.timestamps import timestamp
from penstock.core.reconcile.adapter_conditions import AdapterState
from penstock.core.reconcile.adapter_status import adapter_events, adapter_status, changed_fields
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


class AdapterStatuses:
    """Compares what is known with what was known, and writes only what differs."""

    def __init__(self, kube: Kube, failures: Failures) -> None:
        self._kube = kube
        self._failures = failures
        self._events = EventRecorder(kube, OPERATOR_MANAGER)
        self._slots = asyncio.Semaphore(MAX_WRITES)
        # The entries whose status is as it should be.
        self._settled: dict[Key, AdapterEntry] = {}

    async def update(self, entries: Iterable[AdapterEntry]) -> None:
        """Write the statuses of all adapters. An error on one stops no other."""
        settled: dict[Key, AdapterEntry] = {}
        changed = []
        for entry in entries:
            last = self._settled.get(entry.resource.key)
            if last is not None and _is_same(last, entry):
                settled[entry.resource.key] = entry
            else:
                changed.append(entry)
        self._settled = settled
        await asyncio.gather(*map(self._update_one, changed))

    async def _update_one(self, entry: AdapterEntry) -> None:
        key = entry.resource.key
        with self._failures.isolate_errors("adapters", "/".join(key)):
            async with self._slots:
                await self._write(entry)

    async def _write(self, entry: AdapterEntry) -> None:
        body = entry.body
        stored, now = body.get("status") or {}, timestamp(unix_time())
        rollout = entry.rollout.rollout if entry.rollout else None
        after = adapter_status(entry.resource, entry.state, entry.demand, stored, now, rollout)
        after |= {} if entry.rollout is None else entry.rollout.as_status(stored)
        changed = changed_fields(stored, after)
        if not changed:
            self._settled[entry.resource.key] = entry
            return
        # The patch fails if the adapter was replaced or changed meanwhile.
        preconditions = {name: body["metadata"][name] for name in ("uid", "resourceVersion")}
        patch = {"metadata": preconditions, "status": changed}
        try:
            await self._kube.merge(
                LORA_ADAPTERS, *entry.resource.key, patch, manager=OPERATOR_MANAGER, sub="status"
            )
        except (NotFound, Conflict):
            return  # its watch event starts another try
        for kind, reason, message in adapter_events(stored, after):
            await self._events.post(body, kind, reason, message)


def _is_same(last: AdapterEntry, entry: AdapterEntry) -> bool:
    return (
        last.body is entry.body
        and last.state == entry.state
        and last.rollout == entry.rollout
        and _shown(last) == _shown(entry)
    )


def _shown(entry: AdapterEntry) -> tuple[str, float | None] | None:
    demand = entry.demand
    return None if demand is None else (demand.requests_per_s, demand.last_used_s)
