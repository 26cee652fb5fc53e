"""The admission queues of all services that have latency objectives."""

from collections.abc import Callable

from penstock.core.admission.admission_spec import AdmissionSpec
from penstock.core.admission.engines import Engines
from penstock.core.routing.pick import Side
from penstock.gateway.admission.queue import AdmissionQueue, EjectedPods, Holders
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Service, Snapshot


class AdmissionQueues:
    """Keeps one admission queue for each service with objectives and each of its sides with weight.

    ejected: returns the pods to avoid. find_holders: returns those of the pods that have an adapter in
    memory. now: the monotonic clock.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        engines: Engines,
        ejected: EjectedPods,
        find_holders: Holders,
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._ejected = ejected
        self._find_holders = find_holders
        self._now = now
        self._queues: dict[tuple[str, Side], AdmissionQueue] = {}

    def get(self, service: str, side: Side) -> AdmissionQueue | None:
        """Return the queue of a side of the service "namespace/name"; None if it has none."""
        return self._queues.get((service, side))

    def update(self, snapshot: Snapshot) -> None:
        """Create, update and close queues as the snapshot says.

        A side with weight keeps its queue while it has no engines, and the times that were learned from
        earlier ones.
        """
        old, self._queues = self._queues, {}
        for service in snapshot.services:
            if (spec := self._spec(service)) is None:
                continue
            for side, weight in service.weights.items():
                if not weight:
                    continue
                key = service.key, side
                queue = old.pop(key, None) or self._new_queue(spec)
                self._queues[key] = queue
                of_side = [e for e in service.endpoints if e.side == side]
                queue.update(spec, of_side, service.endpoints)
        for queue in old.values():
            queue.close()

    def note_copies(self, service: str) -> None:
        """Look again at a service's requests for adapters, whose copies have changed."""
        for (of, _), queue in self._queues.items():
            if of == service:
                queue.note_copies()

    def _new_queue(self, spec: AdmissionSpec) -> AdmissionQueue:
        return AdmissionQueue(spec, self._engines, self._ejected, self._find_holders, self._now)

    def _spec(self, service: Service) -> AdmissionSpec | None:
        if service.objectives is None:
            return None
        return AdmissionSpec(
            "deadline",
            service.objectives.max_wait_s,
            self._settings.max_waiting,
            self._settings.wait_for_endpoint_s,
        )
