"""Failed loads of adapters by one gateway, and until when they are not tried again.

They are remembered by what was loaded, not by the LoraAdapter, which its owner may delete and create again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from penstock.clients.pods.engine_adapters import EngineFailure
from penstock.core.adapters.load_failures import (
    MIN_REFUSALS,
    LoadFailure,
    after_break,
    after_failure,
    after_success,
    blocked,
    keep_recent,
)
from penstock.core.routing.pick import Endpoint
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Snapshot

# In the key of a failure that holds for all engines of a revision.
ANY_POD = ""


class _Key(NamedTuple):
    """A version of an adapter on an engine. service: "namespace/name". revision: of the service."""

    service: str
    uri: str
    revision: str
    pod: str


class AdapterFailures:
    """The failed loads. now: the monotonic clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: Mapping[_Key, LoadFailure] = {}

    def find(self, adapter: Adapter, endpoints: Iterable[Endpoint]) -> Mapping[str, LoadFailure]:
        """Return why endpoints are not asked to load the adapter now, by pod. The others are."""
        now_s = self._now()
        found = {}
        for endpoint in endpoints:
            for pod in (endpoint.pod, ANY_POD):
                failure = self._failures.get(_key(adapter, endpoint, pod))
                if failure is not None and failure.is_blocking(now_s):
                    found[endpoint.pod] = failure
        return found

    def note_success(self, adapter: Adapter, endpoint: Endpoint) -> None:
        """Record that the engine has loaded the adapter."""
        for pod in (endpoint.pod, ANY_POD):
            self._failures = after_success(self._failures, _key(adapter, endpoint, pod))

    def note_failure(self, adapter: Adapter, endpoint: Endpoint, failure: EngineFailure) -> None:
        """Record that the engine has not loaded the adapter. Failures that are the engine's do not count."""
        if failure.kind == "Refused":
            self._note_refusal(adapter, endpoint, failure.message)
        elif failure.kind == "Unanswered":
            of_any = _key(adapter, endpoint, ANY_POD)
            self._failures = after_break(self._failures, of_any, failure.message, self._now())

    def update(self, snapshot: Snapshot) -> None:
        """Forget old failures of versions that no adapter has any more, and of engines that are gone."""
        if not self._failures:
            return
        loads = {
            (each.service, version.uri) for each in snapshot.adapters for version in each.versions
        }
        places = {
            (service.key, each.revision, pod)
            for service in snapshot.services_with_adapters
            for each in service.endpoints
            for pod in (each.pod, ANY_POD)
        }
        self._failures = keep_recent(
            self._failures,
            lambda key: key[:2] in loads and (key.service, key.revision, key.pod) in places,
            self._now(),
            namespace_of=lambda key: key.service.partition("/")[0],
        )

    def _note_refusal(self, adapter: Adapter, endpoint: Endpoint, reason: str) -> None:
        """Record a refusal. When two engines refuse, the pause for all engines doubles.

        Otherwise each further engine would begin with the shortest pause, and each load may cost another
        adapter its slot.
        """
        now_s = self._now()
        key, of_any = (_key(adapter, endpoint, pod) for pod in (endpoint.pod, ANY_POD))
        failures = after_failure(self._failures, key, reason, now_s)
        refusing = {each for each in blocked(failures, now_s) if each[:3] == key[:3]} - {of_any}
        is_by_all = len(refusing) >= MIN_REFUSALS
        self._failures = after_failure(failures, of_any, reason, now_s) if is_by_all else failures


def _key(adapter: Adapter, endpoint: Endpoint, pod: str) -> _Key:
    return _Key(adapter.service, adapter.version.uri, endpoint.revision, pod)
