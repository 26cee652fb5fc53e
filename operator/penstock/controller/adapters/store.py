"""The LoraAdapters as last watched, each read once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key, key_of
from penstock.controller.process.failures import Failures
from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.adapters.demand import AdapterCounts
from penstock.core.adapters.fetched import (
    Fetched,
    fetched_versions,
    kept_revisions,
    needed_versions,
    version_to_hold,
)
from penstock.core.adapters.resource import AdapterResource, adapter_resource
from penstock.core.adapters.shown_demand import ShownDemand, show_demand, stored_demand
from penstock.core.adapters.versions import stable_version
from penstock.core.reconcile.adapter_state import LoadError
from penstock.core.reconcile.adapter_status import is_resolved, stored_errors
from penstock.core.rollout.commands import ANNOTATION

NO_COUNTS = AdapterCounts()


@dataclass(slots=True)
class StoredAdapter:
    """A LoraAdapter."""

    body: Object
    resource: AdapterResource  # with the version that the spec asks for
    served: AdapterResource  # with the version that gets the traffic
    engine_name: str  # of the served version
    is_resolved: bool  # whether an engine has read it, by the status
    errors: Mapping[str, LoadError]  # its failed loads by pod, by the status
    needed: tuple[AdapterVersion, ...]  # versions whose files have to be in the cache
    fetched: Fetched  # those that the status records
    is_new: bool  # whether the spec's version has a source to fetch, and neither serves nor is rolled out
    demand: ShownDemand | None = None  # as the status shows it; None until gateways have been asked

    @property
    def kept_revisions(self) -> tuple[str, ...]:
        """Revisions whose fetched files stay."""
        return kept_revisions(self.resource.version, self.body.get("status") or {})

    def without_new_version(self) -> "StoredAdapter | None":
        """The adapter as if its spec still asked for the previous version; None if it has none.

        For the time until the version of the spec is fetched.
        """
        status = self.body.get("status") or {}
        held = version_to_hold(self.resource.version, status)
        return (
            None if held is None else replace(self, resource=replace(self.resource, version=held))
        )

    def count(self, counts: Mapping[str, AdapterCounts], now_s: float) -> None:
        """Update the demand. counts: of gateways, by name in engines. now_s: Unix time."""
        mine = counts.get(self.engine_name, NO_COUNTS)
        if self.demand is None:
            self.demand = stored_demand(self.body.get("status") or {}, mine, now_s)
        else:
            self.demand = show_demand(self.demand, mine, now_s)


class AdapterStore:
    """Reads the objects that changed since the last time."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._adapters: dict[Key, StoredAdapter] = {}
        self._unreadable: dict[Key, Object] = {}

    def update(self, bodies: Iterable[Object]) -> list[StoredAdapter]:
        """All readable adapters in the order of their claims. An unreadable one is logged once."""
        found: dict[Key, StoredAdapter] = {}
        unreadable: dict[Key, Object] = {}
        for body in bodies:
            key = key_of(body)
            last = self._adapters.get(key)
            if last is not None and last.body is body:
                found[key] = last
            elif self._unreadable.get(key) is body:
                unreadable[key] = body
            else:
                unreadable[key] = body
                with self._failures.isolate_errors("adapters", *key):
                    found[key] = _read(body, last)
                    del unreadable[key]
        self._adapters, self._unreadable = found, unreadable
        return sorted(found.values(), key=lambda each: each.resource.claim)

    def is_news(self, key: Key, body: Object | None) -> bool:
        """Whether the adapter is new, gone, or has another spec, command or phase than at the last update."""
        last = self._adapters.get(key)
        if last is None or body is None:
            return (last is None) != (body is None)
        return _news_of(body) != _news_of(last.body)


def _news_of(body: Object) -> tuple[object, ...]:
    """Fields whose change starts a pass at once: generation, the last command, and the rollout's phase."""
    metadata, rollout = body["metadata"], (body.get("status") or {}).get("rollout") or {}
    command = (metadata.get("annotations") or {}).get(ANNOTATION)
    return metadata.get("generation"), command, rollout.get("phase")


def _read(body: Object, last: StoredAdapter | None) -> StoredAdapter:
    resource, status = adapter_resource(body), body.get("status") or {}
    version = stable_version(resource.version, status)
    name = version.engine_name
    is_same = last is not None and last.engine_name == name and last.resource.uid == resource.uid
    return StoredAdapter(
        body,
        resource,
        replace(resource, version=version),
        name,
        is_resolved(status, version.revision),
        stored_errors(status, version.revision),
        needed_versions(resource.version, status),
        fetched_versions(status),
        resource.version.is_fetched
        and version_to_hold(resource.version, status) != resource.version,
        last.demand if last is not None and is_same else None,
    )
