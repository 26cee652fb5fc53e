"""Chooses the pool of each adapter once per pass of the placement loop, and writes dedicated pools."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.clients.kubernetes.client import Kube, Object
from penstock.clients.kubernetes.informer import Key
from penstock.clients.machine.clock import unix_time
from penstock.clients.pods.engine_adapters import Copies
from penstock.controller.adapters.dedicated_services import DedicatedServices
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.adapters.rollouts import SteppedRollout
from penstock.controller.adapters.store import StoredAdapter
from penstock.controller.process.failures import Failures
from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.adapters.dedicated import adapter_of, dedicated_name, is_pool_of
from penstock.core.adapters.pool import Pool, PoolInputs, PoolStatus, PoolStep, step_pool
from penstock.core.adapters.resource import AdapterResource
from penstock.core.adapters.versions import pool_key
from penstock.core.formats.conditions import find_condition
from penstock.core.formats.timestamps import parse_timestamp, timestamp
from penstock.core.manifests.dedicated_service import dedicated_service, parent_not_ready
from penstock.core.observed.rollout_state import is_rolling
from penstock.core.reconcile.adapter_state import Cause
from penstock.core.rollout.routes import AppliedGenerations, explain_moved_traffic

# Placement of copies that stay while gateways may send requests to them, and that are not loaded again.
LEAVING = Placement()


@dataclass(frozen=True, slots=True)
class PlacedAdapter:
    """An adapter in one pool. versions: with the pool's placement.

    is_wanted: whether the pool is to have copies; otherwise it may only keep them for a while.
    """

    adapter: StoredAdapter
    versions: tuple[AdapterVersion, ...]
    is_wanted: bool = True


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of all adapters after a step. steps: of those that have or had a dedicated pool."""

    steps: Mapping[Key, PoolStep] = field(default_factory=dict)

    def serving(self, resource: AdapterResource) -> Key:
        """Key of the InferenceService whose engines serve an adapter."""
        step = self.steps.get(resource.key)
        if step is None:
            return resource.service_key
        return resource.namespace, step.state.serving_service(resource.service)

    def place(
        self, adapters: Iterable[StoredAdapter], rollouts: Mapping[Key, SteppedRollout]
    ) -> dict[Key, list[PlacedAdapter]]:
        """The adapters by the services whose engines are to have copies of them, or may keep them."""
        found: dict[Key, list[PlacedAdapter]] = {}
        for each in adapters:
            for service, placed in self._placements(each, rollouts.get(each.resource.key)):
                found.setdefault(service, []).append(placed)
        return found

    def _placements(
        self, adapter: StoredAdapter, rollout: SteppedRollout | None
    ) -> Iterator[tuple[Key, PlacedAdapter]]:
        """The services whose engines may have copies of an adapter."""
        resource = adapter.resource
        versions = (adapter.served.version,) if rollout is None else rollout.rollout.placed
        step = self.steps.get(resource.key)
        if step is None:
            yield resource.service_key, PlacedAdapter(adapter, versions)
            return
        pools: tuple[Pool, ...] = ("Shared", "Dedicated")
        for pool in pools:
            name = step.state.service if pool == "Dedicated" else resource.service
            if name and step.has_copies_in(pool):
                is_wanted = pool in (step.wanted, step.state.serving)
                placement = _placement(pool, step, resource.version.placement)
                placed = tuple(replace(version, placement=placement) for version in versions)
                yield (resource.namespace, name), PlacedAdapter(adapter, placed, is_wanted)


def _placement(pool: Pool, step: PoolStep, placement: Placement) -> Placement:
    """Placement of an adapter's copies in a pool. placement: that of its spec."""
    if pool not in (step.wanted, step.state.serving):
        return LEAVING
    if pool == "Dedicated":
        return replace(placement, policy="All", min_copies=0, max_copies=None)
    if step.state.serving == "Dedicated":  # the copy that the change of the pool waits for
        return replace(placement, min_copies=max(1, placement.min_copies))
    return placement


class AdapterPools:
    """Steps the pools, and writes the InferenceServices that they need.

    applied: the generation of an adapter's pool that each gateway applies, by `pool_key`.
    """

    def __init__(
        self, kube: Kube, failures: Failures, applied: Callable[[Key], AppliedGenerations | None]
    ) -> None:
        self._writer = DedicatedServices(kube, failures)
        self._failures = failures
        self._applied = applied
        self._stepped: list[tuple[AdapterResource, PoolStep, bool]] = []
        self._writing: asyncio.Task[None] | None = None

    def step(
        self,
        adapters: Iterable[StoredAdapter],
        refusals: Mapping[Key, Cause | None],
        services: Mapping[Key, Object],
        pods: Mapping[Key, list[LoraPod]],
        listed: Mapping[Key, Copies],
    ) -> Pools:
        """Choose the pool of each adapter. refusals: why adapters are not accepted."""
        self._stepped, now_s = [], unix_time()
        for each in adapters:
            resource, status = each.resource, each.body.get("status") or {}
            state = PoolStatus.of(status)
            is_shared = resource.pool == "Shared" and not state.generation
            if is_shared and own_pool(resource, services) is None:
                continue
            is_accepted = refusals[resource.key] is None
            inputs = self._inputs(each, state, services, now_s)
            inputs = replace(inputs, is_accepted=is_accepted)
            if is_accepted:
                num_dedicated, num_shared = (
                    _num_copies(
                        each.engine_name, (resource.namespace, name), services, pods, listed
                    )
                    for name in (inputs.service, inputs.parent)
                )
                inputs = replace(inputs, num_dedicated=num_dedicated, num_shared=num_shared)
            is_written = is_accepted and "deletionTimestamp" not in each.body["metadata"]
            step = step_pool(state, inputs)
            self._stepped.append((resource, step, is_written))
        return Pools({resource.key: step for resource, step, _ in self._stepped})

    def start_writes(self, services: Mapping[Key, Object]) -> None:
        """Start to create, change and delete the InferenceServices of the last step.

        Does nothing if the last writes have not ended: a slow API server must not delay the next pass.
        """
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(services))

    async def close(self) -> None:
        """Cancel the writes that run, and wait for their end."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self, services: Mapping[Key, Object]) -> None:
        kept = set()
        for resource, step, is_written in self._stepped:
            key = _dedicated_key(resource)
            kept.add(key)
            with self._failures.isolate_errors("adapters", *key):
                await self._write_one(key, resource, step, services, is_written=is_written)
        self._writer.keep_only(kept)

    async def _write_one(
        self,
        key: Key,
        resource: AdapterResource,
        step: PoolStep,
        services: Mapping[Key, Object],
        *,
        is_written: bool,
    ) -> None:
        """Create, change or delete one InferenceService, unless it is another owner's or being deleted."""
        stored = services.get(key)
        is_own = stored is None or is_pool_of(stored, resource.uid)
        if not is_own or (stored is not None and "deletionTimestamp" in stored["metadata"]):
            return
        if not step.keeps_service:
            if stored is not None:
                await self._writer.delete(key, stored["metadata"]["uid"])
        elif is_written and step.wanted == "Dedicated":
            parent = services[resource.service_key]
            if stored is not None or not parent_not_ready(parent):
                await self._writer.write(dedicated_service(parent, resource, stored), stored)

    def _inputs(
        self,
        adapter: StoredAdapter,
        state: PoolStatus,
        services: Mapping[Key, Object],
        now_s: float,
    ) -> PoolInputs:
        """Inputs of a step, without the copies. now_s: Unix time."""
        resource = adapter.resource
        waited_s = now_s - parse_timestamp(state.change_time) if state.change_time else 0.0
        key = _dedicated_key(resource)
        stored, parent = services.get(key), services.get(resource.service_key)
        is_own = stored is not None and is_pool_of(stored, resource.uid)
        applied = self._applied(pool_key(*resource.key))
        return PoolInputs(
            wanted=resource.pool,
            parent=resource.service,
            service=key[1],
            has_parent=parent is not None,
            has_service=is_own
            and stored is not None
            and "deletionTimestamp" not in stored["metadata"],
            conflict="" if stored is None or is_own else _conflict(stored),
            parent_not_ready="" if parent is None else parent_not_ready(parent),
            refusal=self._writer.refusal(key),
            needed=resource.bounds.min_replicas,
            is_rolling=is_rolling(adapter.body.get("status") or {}),
            stalled=_message(stored, "True", "Stalled") if is_own else "",
            obstacle=_message(stored, "False", "ModelReady", "WorkloadReady") if is_own else "",
            has_traffic_moved=bool(explain_moved_traffic(applied, state.generation, waited_s)),
            now=timestamp(now_s),
        )


def own_pool(resource: AdapterResource, services: Mapping[Key, Object]) -> Object | None:
    """The InferenceService that is the adapter's dedicated pool; None if it has none."""
    stored = services.get(_dedicated_key(resource))
    return stored if stored is not None and is_pool_of(stored, resource.uid) else None


def _dedicated_key(resource: AdapterResource) -> Key:
    return resource.namespace, dedicated_name(resource.service, resource.name)


def _conflict(stored: Object) -> str:
    name, owner = stored["metadata"]["name"], adapter_of(stored)
    if owner:
        taken = f"the InferenceService {name} is the pool of the LoraAdapter {owner}"
        return f"{taken}; create this adapter under another name"
    taken = f"the namespace has another InferenceService {name}"
    return f"{taken}; delete it, or create the adapter under another name"


def _num_copies(
    engine_name: str,
    key: Key,
    services: Mapping[Key, Object],
    pods: Mapping[Key, list[LoraPod]],
    listed: Mapping[Key, Copies],
) -> int:
    """Number of a service's engines with the version in memory; 0 while no revision gets requests."""
    if not find_condition(services.get(key, {}).get("status"), "TrafficAvailable", "True"):
        return 0
    copies = (listed.get(pod.key, {}).get(engine_name) for pod in pods.get(key, ()))
    return sum(copy is not None and copy.state == "Resident" for copy in copies)


def _message(service: Object | None, status: str, *kinds: str) -> str:
    """Message of the first of these conditions that has this status; empty if none has."""
    stored = (service or {}).get("status")
    found = (find_condition(stored, kind, status) for kind in kinds)
    return next((str(each["message"]) for each in found if each), "")
