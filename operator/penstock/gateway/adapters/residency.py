"""Which engine pods have which adapters, as the engines list them and this gateway loads them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.core.adapters.drain import Drain
from penstock.core.adapters.replica import Copy, CopyState
from penstock.gateway.adapters.copy_waiters import CopyWaiters

# Time for which the last list of an engine that does not answer is used like a new one, in seconds. Engines
# are polled every second; a long step of a busy engine may delay a few answers.
BELIEVE_S = 6.0

LOADING, RESIDENT = Copy("Loading"), Copy("Resident")
# A copy that was loaded for a request that is not sent yet.
LOADED = Copy("Resident", requests=1)


@dataclass(slots=True)
class _Pod:
    """The adapters of a pod.

    listed: the engine's last list. listed_s: when it was asked for, or a later load ended. changes: what
    this gateway learned later, with its time; None: the adapter is gone. loading: adapters that this
    gateway loads there now. copies: all of this together. drains: the last one
    of each copy, while it matters.
    """

    listed: Mapping[str, Copy]
    listed_s: float
    changes: dict[str, tuple[float, Copy | None]] = field(default_factory=dict)
    loading: set[str] = field(default_factory=set)
    copies: Mapping[str, Copy] = field(default_factory=dict)
    drains: Mapping[str, Drain] = field(default_factory=dict)

    def merge(self) -> None:
        """Make `copies` from the other fields, and forget the drains of copies that are gone."""
        merged = dict(self.listed)
        for name, (_, copy) in self.changes.items():
            if copy is None:
                merged.pop(name, None)
            else:
                merged[name] = copy
        for name in self.loading:
            merged.setdefault(name, LOADING)
        self.copies = merged
        self.drains = {n: each for n, each in self.drains.items() if self.has_resident(n)}

    def has_resident(self, adapter: str) -> bool:
        """Whether the adapter is in memory."""
        copy = self.copies.get(adapter)
        return copy is not None and copy.state == "Resident"

    def is_draining(self, adapter: str, now_s: float) -> bool:
        """Whether the copy takes no new requests."""
        drain = self.drains.get(adapter)
        return drain is not None and drain.is_draining(now_s)

    def drain(self, adapter: str, now_s: float) -> None:
        """Drain the copy, or prolong its drain. Forget old drains of others."""
        kept = {n: each for n, each in self.drains.items() if each.is_remembered(now_s)}
        last = kept.get(adapter)
        self.drains = kept | {adapter: last.next(now_s) if last else Drain(now_s, now_s)}


class AdapterResidency:
    """The adapters of each engine pod "namespace/name".

    now: the monotonic clock. waiters: the requests that wait for a copy. listeners: called with the service
    "namespace/name" of the pod after each load, eviction or unload that is noticed.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pods: dict[str, _Pod] = {}
        self._services: Mapping[str, str] = {}  # by pod
        self.waiters = CopyWaiters()
        self.listeners: list[Callable[[str], None]] = []

    def copies(self, pod: str) -> Mapping[str, Copy] | None:
        """Return the adapters of the pod by name; None if its engine has not listed them lately."""
        known = self._pods.get(pod)
        return known.copies if known is not None and self._is_fresh(known) else None

    def holders(self, pods: Iterable[str], adapter: str) -> set[str]:
        """Return those of the pods that have the adapter in memory.

        If no engine has listed it lately, those that had it: a list that hangs must not stop requests, and an
        engine that has lost its copy answers 404.
        """
        now_s = self._now()
        found = {
            pod: known
            for pod in pods
            if (known := self._pods.get(pod)) is not None
            and known.has_resident(adapter)
            and not known.is_draining(adapter, now_s)
        }
        return {pod for pod, known in found.items() if self._is_fresh(known)} or set(found)

    def drain_copy(self, pod: str, adapter: str) -> None:
        """Send no new requests to a copy, so that it becomes idle; for a while, as `Drain` says."""
        known, now_s = self._pods.get(pod), self._now()
        if known is None or not known.has_resident(adapter):
            return
        was_draining = known.is_draining(adapter, now_s)
        known.drain(adapter, now_s)
        if not was_draining:
            self._call_listeners(pod)

    def draining(self, pod: str) -> frozenset[str]:
        """Return the adapters on the pod whose copies take no new requests."""
        now_s = self._now()
        return frozenset(n for n, each in self._drains(pod) if each.is_draining(now_s))

    def backing_off(self, pod: str) -> frozenset[str]:
        """Return the adapters on the pod whose copies are not drained yet, as they were lately."""
        now_s = self._now()
        return frozenset(n for n, each in self._drains(pod) if each.is_backing_off(now_s))

    def _drains(self, pod: str) -> Iterable[tuple[str, Drain]]:
        known = self._pods.get(pod)
        return () if known is None else known.drains.items()

    def _is_fresh(self, known: _Pod) -> bool:
        return self._now() - known.listed_s <= BELIEVE_S

    def note_list(self, pod: str, listed: Mapping[str, Copy], asked_s: float) -> None:
        """Record an engine's list. asked_s: when it was asked for; later changes are newer than it."""
        known = self._pods.setdefault(pod, _Pod({}, asked_s))
        known.listed_s = max(known.listed_s, asked_s)
        changes = {n: change for n, change in known.changes.items() if change[0] >= asked_s}
        if listed is not known.listed or len(changes) < len(known.changes):
            known.listed, known.changes = listed, changes
            self._update(pod)

    def note_resident(self, pod: str, adapter: str) -> None:
        """Record that the engine reads an evicted adapter again."""
        self._note(pod, adapter, RESIDENT)

    def note_used(self, pod: str, adapter: str) -> None:
        """Record that a request is about to be sent to a copy: from then on its own count protects it."""
        known = self._pods.get(pod)
        if known is not None and (change := known.changes.get(adapter)) and change[1] is LOADED:
            known.changes[adapter] = change[0], RESIDENT
            self._update(pod)

    def note_absent(self, pod: str, adapter: str) -> None:
        """Record that the engine does not know the adapter."""
        self._note(pod, adapter, None)

    def start_loading(self, pod: str, adapter: str) -> None:
        """Show the adapter as being loaded on the pod until `end_loading`."""
        known = self._pods.setdefault(pod, _Pod({}, self._now()))
        known.loading.add(adapter)
        self._update(pod)

    def end_loading(self, pod: str, adapter: str, *, is_loaded: bool) -> None:
        """Record the end of a load. is_loaded: whether the engine has the adapter in memory now.

        The copy counts as having a request until one is sent or the engine lists it, so that it is not
        unloaded before the request that it was loaded for.
        """
        known = self._pods.get(pod)
        if known is None:
            return
        known.loading.discard(adapter)
        if is_loaded:
            known.listed_s = self._now()  # an engine that answers a load is alive
            known.changes[adapter] = known.listed_s, LOADED
        self._update(pod)

    def update(self, services: Mapping[str, str]) -> None:
        """Set the service "namespace/name" of each pod, and drop other pods."""
        self._services = services
        self._pods = {pod: known for pod, known in self._pods.items() if pod in services}

    def _note(self, pod: str, adapter: str, copy: Copy | None) -> None:
        known = self._pods.get(pod)
        if known is not None:
            known.changes[adapter] = self._now(), copy
            self._update(pod)

    def _update(self, pod: str) -> None:
        known = self._pods[pod]
        before = known.copies
        known.merge()
        if known.copies == before:
            known.copies = before  # choices do not count the same copies again
            return
        service = self._services.get(pod, "")
        self.waiters.note_room(service)
        was, now = _states(before), _states(known.copies)
        if was == now:
            return
        for adapter in was.keys() | now.keys():
            if was.get(adapter) == now.get(adapter):
                continue
            if now.get(adapter) == "Resident":
                self.waiters.wake_all(service, adapter)
            else:
                self.waiters.note_change(service, adapter)
        self._call_listeners(pod)

    def _call_listeners(self, pod: str) -> None:
        if service := self._services.get(pod):
            for listener in self.listeners:
                listener(service)


def _states(copies: Mapping[str, Copy]) -> dict[str, CopyState]:
    return {name: copy.state for name, copy in copies.items()}
