"""The lines of all services that have objectives; the others have none."""

from collections.abc import Callable

from penstock.core.routing.admission import AdmissionSpec
from penstock.core.routing.pick import Side
from penstock.gateway.line import Ejected, Line
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshot import Service, Snapshot


class Lines:
    def __init__(
        self, settings: GatewaySettings, ejected: Ejected, now: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._ejected = ejected
        self._now = now
        self._lines: dict[tuple[str, Side], Line] = {}

    def get(self, service: str, side: Side) -> Line | None:
        """service: "namespace/name"."""
        return self._lines.get((service, side))

    def follow(self, snapshot: Snapshot) -> None:
        """A side with weight keeps its line while it has no engines, and what was learned of them."""
        lines, self._lines = self._lines, {}
        for service in snapshot.services:
            if (spec := self._spec(service)) is None:
                continue
            for side, weight in service.weights.items():
                if not weight:
                    continue
                key = service.key, side
                line = lines.pop(key) if key in lines else Line(spec, self._ejected, self._now)
                self._lines[key] = line
                line.follow(spec, [e for e in service.endpoints if e.side == side])
        for line in lines.values():
            line.close()

    def _spec(self, service: Service) -> AdmissionSpec | None:
        if service.objectives is None:
            return None
        return AdmissionSpec(
            "deadline",
            service.objectives.ttft_s,
            self._settings.max_waiting,
            self._settings.wait_for_endpoint_s,
        )
