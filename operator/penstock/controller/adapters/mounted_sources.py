"""Volumes for adapters that the engines of each service mount."""

from collections.abc import Collection

from penstock.api.conversion.past_specs import accepted_spec
from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.informer import Key, key_of
from penstock.core.spec.adapter_sources import adapter_sources


class MountedSources:
    """Reads the sources of each service once, until its object changes."""

    def __init__(self) -> None:
        self._sources: dict[Key, tuple[Object, tuple[str, ...] | None]] = {}

    def forget_others(self, services: Collection[Key]) -> None:
        """Forget all but these services."""
        self._sources = {key: each for key, each in self._sources.items() if key in services}

    def of(self, service: Object) -> tuple[str, ...] | None:
        """URIs of the sources; None if the spec of the service is invalid."""
        key = key_of(service)
        known = self._sources.get(key)
        if known is None or known[0] is not service:
            accepted = accepted_spec(service)
            sources = None if accepted is None else adapter_sources(accepted)
            known = self._sources[key] = (service, sources)
        return known[1]
