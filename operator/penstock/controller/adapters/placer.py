"""The placement loop: loads and unloads LoRA adapters on engines, and writes their statuses.

    adapters, services, pods (watched), copies (polled from engines), demand (from gateways' reports)
      -> pools -> rollouts of versions -> place -> loads and unloads in the background
      -> statuses, metrics, records, InferenceServices of dedicated pools

The engines' lists are the only state that a restarted operator needs.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Informer, Key
from penstock.clients.kubernetes.resources import LORA_ADAPTERS
from penstock.clients.machine.clock import monotonic, steady, unix_time
from penstock.clients.pods.engine_adapters import Copies, EngineAdapters
from penstock.controller.adapters.copy_changes import Change, CopyChanges
from penstock.controller.adapters.fetches import AdapterFetches, Fetches
from penstock.controller.adapters.lora_pods import LoraPod, lora_pods
from penstock.controller.adapters.pools import AdapterPools, PlacedAdapter, Pools
from penstock.controller.adapters.refusals import AdapterRefusals
from penstock.controller.adapters.residency import Residency
from penstock.controller.adapters.rollouts import (
    AdapterRollouts,
    SteppedRollout,
    copies_by_adapter,
)
from penstock.controller.adapters.service import AdapterService, ServiceInputs
from penstock.controller.adapters.sources import Sources
from penstock.controller.adapters.states import AdapterStates, with_zero
from penstock.controller.adapters.statuses import AdapterEntry, AdapterStatuses
from penstock.controller.adapters.store import AdapterStore, StoredAdapter
from penstock.controller.process.failures import Failures
from penstock.controller.process.settings import Settings
from penstock.core.adapters.placement_record import PlacementRecord
from penstock.core.adapters.shown_demand import requests_per_s
from penstock.core.reconcile.adapter_acceptance import settle_name
from penstock.core.reconcile.adapter_conditions import has_been_read
from penstock.core.reconcile.adapter_state import AdapterState, Cause

# Period of the passes, in seconds: usually, and while copies change. A status is as old as the last pass.
TICK_S, CHANGING_TICK_S = 1.0, 0.5
# Shortest pause between two passes, in seconds.
MIN_PAUSE_S = 0.2


class AdapterPlacer:
    """Runs a pass over all services every second, and at once after a change of an adapter's spec.

    While copies change, passes run twice a second.

    settings: of the operator. changed: called with each adapter that is added, changed or deleted; None for a
    deleted one. restarted: called with the kind when it is listed again.
    """

    def __init__(
        self,
        kube: Kube,
        engines: EngineAdapters,
        sources: Sources,
        failures: Failures,
        settings: Settings,
        *,
        changed: Callable[[Key, Object | None], None] = lambda *_: None,
        restarted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._sources = sources
        self._report_change = changed
        self._failures = failures
        self._changed = asyncio.Event()
        self._adapters = Informer(
            kube,
            LORA_ADAPTERS,
            namespace=settings.watch_namespace,
            changed=self._adapter_changed,
            restarted=restarted,
            is_optional=True,
        )
        self._store = AdapterStore(failures)
        self._refusals = AdapterRefusals()
        self._residency = Residency(engines, failures)
        self._changes = CopyChanges(engines, failures, self._observe)
        self._statuses = AdapterStatuses(kube, failures)
        self.fetches = AdapterFetches(kube, failures, settings)
        self._pools = AdapterPools(kube, failures, sources.rollouts.applied_generations)
        self.services: dict[Key, AdapterService] = {}
        self.rollouts = AdapterRollouts(sources.rollouts)

    @property
    def adapters(self) -> Informer | None:
        """All adapters; None until they have been listed."""
        return self._adapters if self._adapters.synced.is_set() else None

    async def run(self) -> None:
        """Watch the adapters and place them, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._adapters.run())
                while True:
                    self._changed.clear()
                    started_s, is_changing = monotonic(), False
                    with self._failures.isolate_pass("adapters"):
                        is_changing = await self.tick()
                    next_s = started_s + (CHANGING_TICK_S if is_changing else TICK_S)
                    await asyncio.sleep(MIN_PAUSE_S)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(max(0.0, next_s - monotonic())):
                            await self._changed.wait()
        finally:
            await self._changes.close()
            await self._statuses.close()
            await self._pools.close()
            await self.fetches.close()
            await self._residency.close()

    def record(self, key: Key) -> PlacementRecord | None:
        """Return the last placement of a service's adapters; None if no engine takes any."""
        service = self.services.get(key)
        counts = self._sources.counts(key) or {}
        return None if service is None else service.record("/".join(key), counts, steady())

    async def tick(self) -> bool:
        """Place the adapters of all services, and start to write the statuses that changed.

        Returns whether copies changed. Does nothing until all sources have been listed: a new leader would
        take their objects for deleted. Does nothing while the API server does not serve LoraAdapters: which
        copies are wanted is unknown then.
        """
        services, children = self._sources.services(), self._sources.children()
        routes = self._sources.routes()
        if services is None or children is None or routes is None:
            return False
        if not self._adapters.synced.is_set() or self._adapters.is_absent:
            return False
        pods = lora_pods(services, *children, self._failures)
        self._changes.forget_done()
        listed = await self._residency.poll(pod for each in pods.values() for pod in each)
        adapters = self._store.update(map(self._statuses.newest, self._adapters))
        found = self._refusals.find(adapters, services, pods, routes, self._sources.names())
        refusals = found.of_adapters
        accepted = [each for each in adapters if refusals[each.resource.key] is None]
        fetches = self.fetches.step(accepted, services, found.claims, pods, children[1])
        able = [each for each in map(fetches.servable, accepted) if each is not None]
        pools = self._pools.step(adapters, refusals, services, pods, listed)
        rollouts = self._roll_out(able, found.of_specs, services, pools, pods, listed)
        states = self._place(pools.place(able, rollouts), pods, listed)
        self._pools.start_writes(services)
        self.fetches.start_writes()
        entries = self._entries(adapters, refusals, states, rollouts, pools, fetches)
        return self._statuses.update(entries)

    def _roll_out(
        self,
        accepted: Iterable[StoredAdapter],
        refusals: Mapping[Key, Cause | None],
        services: Mapping[Key, Object],
        pools: Pools,
        pods: Mapping[Key, list[LoraPod]],
        listed: Mapping[Key, Copies],
    ) -> dict[Key, SteppedRollout]:
        """Advance the rollouts of the accepted adapters. Returns them by adapter.

        refusals: of the versions that specs ask for.
        """
        stepped: dict[Key, SteppedRollout] = {}
        by_service: dict[Key, list[StoredAdapter]] = {}
        for each in accepted:
            by_service.setdefault(pools.serving(each.resource), []).append(each)
        for key, adapters in by_service.items():
            copies = copies_by_adapter(
                listed[pod.key] for pod in pods.get(key, []) if pod.key in listed
            )
            for each in adapters:
                name = each.resource.key
                with self._failures.isolate_errors("adapters", *name):
                    stepped[name] = self.rollouts.step(
                        each,
                        services[each.resource.service_key],
                        copies,
                        self.services.get(key),
                        refusals[name],
                        unix_time(),
                    )
        self.rollouts.keep_only(stepped, services)
        return stepped

    def _place(
        self,
        placed: Mapping[Key, list[PlacedAdapter]],
        pods: Mapping[Key, list[LoraPod]],
        listed: Mapping[Key, Copies],
    ) -> dict[Key, AdapterStates]:
        """Place the adapters of each service that has engines for them. Returns the states by service."""
        self.services = {
            key: self.services.get(key) or AdapterService(self._changes) for key in pods
        }
        states: dict[Key, AdapterStates] = {}
        for key, service in self.services.items():
            with self._failures.isolate_errors("adapters", *key):
                states[key] = self._place_service(
                    key, service, placed.get(key, []), pods[key], listed
                )
        return states

    def _place_service(
        self,
        key: Key,
        service: AdapterService,
        placed: list[PlacedAdapter],
        pods: list[LoraPod],
        listed: Mapping[Key, Copies],
    ) -> AdapterStates:
        known = {pod.key: pod for pod in pods if pod.key in listed}
        versions = [version for each in placed for version in each.versions]
        names = {version.engine_name for version in versions}
        adapters = [each.adapter for each in placed if each.is_wanted]
        inputs = ServiceInputs(
            versions=versions,
            unread=[
                each.engine_name
                for each in adapters
                if not each.is_resolved and each.engine_name in names
            ],
            errors={each.engine_name: each.errors for each in adapters if each.errors},
            ready=frozenset(pod.name for pod in pods),
            pods=known,
            listed=listed,
            counts=self._sources.counts(key),
            shown_per_s={
                each.engine_name: requests_per_s(each.body.get("status") or {}) for each in adapters
            },
        )
        service.run(inputs, steady())
        return AdapterStates(service, known, {pod: self._changes.of_pod(pod) for pod in known})

    def _entries(
        self,
        adapters: list[StoredAdapter],
        refusals: Mapping[Key, Cause | None],
        states: Mapping[Key, AdapterStates],
        rollouts: Mapping[Key, SteppedRollout],
        pools: Pools,
        fetches: Fetches,
    ) -> list[AdapterEntry]:
        """Decide the names of the adapters. Returns what is known of those with a decided name."""
        now_s, names, entries = unix_time(), self._sources.names(), []
        services = self._sources.services() or {}
        for each in adapters:
            resource, service = each.served, pools.serving(each.resource)
            counts = self._sources.counts(service)
            if counts is not None:
                each.count(counts, now_s)
            cause, of_service = refusals[resource.key], states.get(service)
            if cause is not None:
                state = AdapterState(refusal=cause)
            else:
                known = AdapterState() if of_service is None else of_service.of(resource.version)
                state = with_zero(known, each.errors.values(), services.get(service))
            if (fetch := fetches.outcomes.get(resource.key)) is not None:
                state = replace(state, fetch=fetch.step, fetched=fetch.fetched)
            if (pool := pools.steps.get(resource.key)) is not None:
                state = replace(state, pool=pool)
            is_read = has_been_read(state, was_resolved=each.is_resolved)
            state = replace(state, can_answer=resource.key in rollouts and is_read)
            conflict = settle_name(resource.key, cause, names, can_answer=state.can_answer)
            if conflict is None:
                continue
            if conflict:
                state = replace(state, name_conflict=conflict)
            rollout = rollouts.get(resource.key)
            if rollout is not None and of_service is not None:
                state = replace(state, has_candidate_slot=of_service.has_slot_for(rollout.rollout))
            entries.append(AdapterEntry(each.body, resource, state, each.demand, rollout))
        return entries

    def _observe(self, change: Change) -> None:
        if (service := self.services.get(change.pod.service_key)) is not None:
            service.observe(change, steady())

    def _adapter_changed(self, key: Key) -> None:
        self._report_change(key, self._adapters.get(key))
        if self._store.is_news(key, self._adapters.get(key)):
            self._changed.set()
