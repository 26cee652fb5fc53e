"""The gateway's Prometheus metrics. Label service: "namespace/name", empty while it is not known."""

from collections.abc import Mapping, Set

from penstock.clients.metric_set import MetricSet
from penstock.observability.metrics import gateway as specs


class Metrics:
    """All metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self._set = made = MetricSet(specs.METRICS)
        self.requests = made.counter(specs.REQUESTS)
        self.responses = made.counter(specs.RESPONSES)
        self.in_flight = made.gauge(specs.IN_FLIGHT)
        self.waiting = made.gauge(specs.WAITING)
        self.wait_s = made.histogram(specs.WAIT_S)
        self.first_byte_s = made.histogram(specs.FIRST_BYTE_S)
        self.retries = made.counter(specs.RETRIES)
        self.cut = made.counter(specs.STREAMS_CUT)
        self.disconnects = made.counter(specs.DISCONNECTS)
        self.mirrored_requests = made.counter(specs.MIRRORED_REQUESTS)
        self.mirrored_first_byte_s = made.histogram(specs.MIRRORED_FIRST_BYTE_S)
        self.held_body_bytes = made.gauge(specs.HELD_BODY_BYTES)
        self.held_answer_bytes = made.gauge(specs.HELD_ANSWER_BYTES)
        self.loop_lag_s = made.gauge(specs.LOOP_LAG_S)

    def remove_stale_series(self, revisions: Mapping[str, Set[str]]) -> None:
        """Remove the series of all other services and revisions.

        revisions: by the service "namespace/name".
        """

        def is_stale(service: str, revision: str) -> bool:
            # An empty service counts requests that named no known model, an empty revision those that
            # reached no engine.
            if not service:
                return False
            return service not in revisions or bool(revision and revision not in revisions[service])

        self._set.remove_stale(is_stale)

    def render(self) -> bytes:
        """Return all series in Prometheus' text format."""
        return self._set.render()
