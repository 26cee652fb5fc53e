"""Which adapters are refused, of all that are watched."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.api.conversion.past_specs import accepted_spec
from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key, key_of
from penstock.controller.adapters.lora_pods import LoraPod
from penstock.controller.adapters.pools import own_pool
from penstock.controller.adapters.store import StoredAdapter
from penstock.core.adapters.resource import AdapterResource
from penstock.core.observed.name_index import NameIndex
from penstock.core.reconcile.adapter_acceptance import adapters_of_routes, refusal
from penstock.core.reconcile.adapter_state import Cause
from penstock.core.spec.adapter_sources import adapter_sources, reads_adapters

Causes = Mapping[Key, Cause | None]


@dataclass(frozen=True, slots=True)
class Refusals:
    """Why adapters are refused, by adapter; None for one that is accepted.

    of_specs: of the version that the spec asks for. of_adapters: of that one and of the one that serves. A
    version that cannot be mounted is not rolled out, and takes nothing from the one that serves. claims: of
    the caches for adapters that are fetched, by service; None if there is none, or it is unknown.
    """

    of_specs: Causes
    of_adapters: Causes
    claims: Mapping[Key, str | None]


@dataclass(frozen=True, slots=True)
class ReadVolumes:
    """Volumes that engines of a service read adapters from. sources: their URIs. claim: of the cache."""

    sources: tuple[str, ...]
    claim: str | None


class MountedSources:
    """Reads the volumes with adapters of each service once, until its object changes."""

    def __init__(self) -> None:
        self._sources: dict[Key, tuple[Object, ReadVolumes | None]] = {}

    def forget_others(self, services: Collection[Key]) -> None:
        """Forget all but these services."""
        self._sources = {key: each for key, each in self._sources.items() if key in services}

    def of(self, service: Object) -> ReadVolumes | None:
        """The volumes of a service; None if its spec is invalid."""
        key = key_of(service)
        known = self._sources.get(key)
        if known is None or known[0] is not service:
            known = self._sources[key] = (service, _read_volumes(service))
        return known[1]


class AdapterRefusals:
    """Finds the refusals of each pass."""

    def __init__(self) -> None:
        self._mounted_sources = MountedSources()

    def find(
        self,
        adapters: Collection[StoredAdapter],
        services: Mapping[Key, Object],
        pods: Mapping[Key, list[LoraPod]],
        routes: Iterable[Object],
        names: NameIndex,
    ) -> Refusals:
        """Find the refusals of all adapters. pods: that take adapters, by service."""
        self._mounted_sources.forget_others(services.keys())
        routed = adapters_of_routes(routes, names)
        claims: dict[Key, str | None] = {}

        def cause_of(adapter: AdapterResource) -> Cause | None:
            service = services.get(adapter.service_key)
            volumes = None if service is None else self._mounted_sources.of(service)
            claims[adapter.service_key] = None if volumes is None else volumes.claim
            return refusal(
                adapter,
                service,
                None if volumes is None else volumes.sources,
                names,
                has_cache=volumes is not None and volumes.claim is not None,
                has_engines=_has_engines(adapter, services, pods),
                is_routed=adapter.key in routed,
            )

        of_specs = {each.resource.key: cause_of(each.resource) for each in adapters}
        of_adapters = {
            each.resource.key: of_specs[each.resource.key] and cause_of(each.served)
            for each in adapters
        }
        return Refusals(of_specs, of_adapters, claims)


def _read_volumes(service: Object) -> ReadVolumes | None:
    spec = accepted_spec(service)
    if spec is None:
        return None
    claim = spec.model_cache_claim if reads_adapters(spec) else None
    return ReadVolumes(adapter_sources(spec), claim)


def _has_engines(
    adapter: AdapterResource, services: Mapping[Key, Object], pods: Mapping[Key, list[LoraPod]]
) -> bool:
    """Whether engines of the adapter's service, or of its own pool, take adapters."""
    own = own_pool(adapter, services)
    return bool(pods.get(adapter.service_key) or (own is not None and pods.get(key_of(own))))
