"""An engine pod with adapter slots: the simulated engine, and the loads and evictions before it.

As Penstock's engine does it: loads run while other requests are served, a few at once, the rest in their
order; a full pod evicts the idle adapter that was used least recently; if all have requests, the one with
the fewest accepts no new ones until a slot is free. vLLM runs one load at a time; that it
computes nothing meanwhile is not simulated.
"""

from collections import deque
from collections.abc import Mapping
from functools import cache, partial
from random import Random
from typing import Protocol

from penstock.core.adapters.replica import AdapterReplica, Copy
from penstock.sim.adapters.scenario import Adapters
from penstock.sim.clock import Clock
from penstock.sim.engine.engine import Engine
from penstock.sim.request import Request

LOADING = Copy("Loading")


@cache
def resident(requests: int) -> Copy:
    return Copy("Resident", requests)


class PodListener(Protocol):
    """Gateway of the pods."""

    def freed(self, pod: "AdapterPod", name: str) -> None:
        """A load ended on the pod, or a copy there has no requests any more."""

    def ended(self, request: Request) -> None: ...


class AdapterPod:
    """copies: by name, in memory or loading. num_loads: loads started so far."""

    def __init__(
        self,
        name: str,
        adapters: Adapters,
        load_s: Mapping[str, float],
        clock: Clock,
        listener: PodListener,
    ) -> None:
        """load_s: load time of each adapter, by its name in engines."""
        self.name, self.slots = name, adapters.slots
        self.copies: dict[str, Copy] = {}
        self.num_open = 0
        self.num_loads = 0
        self._loads_at_once = adapters.loads_at_once
        self._clock, self._listener, self._load_s = clock, listener, load_s
        self._engine = Engine(adapters.engine, clock, self, Random(name))
        self._last_used_s: dict[str, float] = {}
        self._queue: deque[str] = deque()  # loads that have not started
        self._num_loading = 0
        self._draining = ""
        self._pending: dict[str, list[Request]] = {}  # requests that wait here for their adapter

    def view(self) -> AdapterReplica:
        """State that operator and gateway see; queued loads count as running. load: open requests."""
        copies = self.copies
        if self._queue:
            copies = {**dict.fromkeys(self._queue, LOADING), **copies}
        return AdapterReplica(
            pod=self.name,
            slots=self.slots,
            copies=copies,
            load=float(self.num_open),
            loads_at_once=self._loads_at_once,
            side="",
            draining_copies=frozenset(),
            backing_off_copies=frozenset(),
        )

    def has(self, name: str) -> bool:
        """Whether the adapter is in memory and accepts requests."""
        copy = self.copies.get(name)
        return copy is not None and copy.state == "Resident" and name != self._draining

    def submit(self, request: Request) -> None:
        """Take a request; load its adapter first if needed."""
        self.num_open += 1
        if self.has(request.adapter):
            self._serve(request)
            return
        self._pending.setdefault(request.adapter, []).append(request)
        self.load(request.adapter)

    def load(self, name: str) -> None:
        """Queue a load, unless the adapter is in memory or queued."""
        copy = self.copies.get(name)
        if name in self._queue or self.has(name) or (copy is not None and copy.state == "Loading"):
            return
        self._queue.append(name)
        self._advance()

    def unload(self, name: str) -> None:
        """Remove an idle copy."""
        assert self.copies[name].requests == 0
        del self.copies[name]

    def started(self, request: Request) -> None:
        """Do nothing: the request holds the time of its first token."""

    def ended(self, request: Request) -> None:
        name = request.adapter
        requests = self.copies[name].requests - 1
        self.copies[name] = resident(requests)
        self._last_used_s[name] = self._clock.now
        self.num_open -= 1
        self._listener.ended(request)
        if requests == 0:
            self._advance()
            self._listener.freed(self, name)

    def _serve(self, request: Request) -> None:
        name = request.adapter
        self.copies[name] = resident(self.copies[name].requests + 1)
        self._last_used_s[name] = self._clock.now
        if not self._engine.submit(request):
            raise ValueError("the request is longer than the engine's context")

    def _advance(self) -> None:
        """Start the next load if there is a slot for it."""
        while self._queue and self._num_loading < self._loads_at_once:
            name = self._queue[0]
            is_loaded = name in self.copies
            if not is_loaded and len(self.copies) >= self.slots and not self._evict():
                return
            self._draining = ""
            self._queue.popleft()
            if is_loaded:
                self._serve_pending(name)
                continue
            self.copies[name] = LOADING
            self._num_loading += 1
            self.num_loads += 1
            end_s = self._clock.now + self._load_s[name]
            self._clock.schedule_at(end_s, partial(self._loaded, name))

    def _evict(self) -> bool:
        """Evict the idle copy used least recently. Without one, let one run out of requests."""
        idle = [n for n, c in self.copies.items() if c.state == "Resident" and c.requests == 0]
        if idle:
            self.unload(min(idle, key=lambda n: self._last_used_s.get(n, 0.0)))
            return True
        busy = [n for n, c in self.copies.items() if c.state == "Resident"]
        if busy and not self._draining:
            last_used_s = self._last_used_s
            self._draining = min(
                busy, key=lambda n: (self.copies[n].requests, last_used_s.get(n, 0.0))
            )
        return False

    def _loaded(self, name: str) -> None:
        self._num_loading -= 1
        self.copies[name] = resident(0)
        self._last_used_s[name] = self._clock.now
        self._serve_pending(name)
        self._listener.freed(self, name)
        self._advance()

    def _serve_pending(self, name: str) -> None:
        for request in self._pending.pop(name, ()):
            self._serve(request)
