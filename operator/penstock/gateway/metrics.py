"""The gateway's Prometheus metrics. Label service: "namespace/name", empty while it is not known."""

from collections.abc import Mapping, Set

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)


class Metrics:
    """All metrics of one gateway, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        service, revision = ["service"], ["service", "revision"]
        self.requests = Counter(
            "penstock_gateway_requests",
            "Requests that arrived for a service.",
            service,
            registry=registry,
        )
        self.responses = Counter(
            "penstock_gateway_responses",
            "Responses, by HTTP status; 499: the client disconnected before there was one.",
            [*revision, "code"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "penstock_gateway_requests_in_flight",
            "Requests that are at an engine.",
            revision,
            registry=registry,
        )
        self.waiting = Gauge(
            "penstock_gateway_requests_waiting",
            "Requests that wait for an engine.",
            service,
            registry=registry,
        )
        self.wait_s = Histogram(
            "penstock_gateway_wait_seconds",
            "Time that a request waited for an engine, for requests that had to wait.",
            service,
            buckets=SECONDS,
            registry=registry,
        )
        self.first_byte_s = Histogram(
            "penstock_gateway_time_to_first_byte_seconds",
            "Time from a request's arrival to the first byte of its response.",
            revision,
            buckets=SECONDS,
            registry=registry,
        )
        self.retries = Counter(
            "penstock_gateway_retries",
            "Retries, by the failure of the attempt before: connect, reset, unavailable, error.",
            [*service, "reason"],
            registry=registry,
        )
        self.cut = Counter(
            "penstock_gateway_streams_cut",
            "Responses cut off after their first byte, by cause: upstream, timeout, shutdown, client.",
            [*revision, "cause"],
            registry=registry,
        )
        self.disconnects = Counter(
            "penstock_gateway_disconnects",
            "Requests whose client disconnected, by the phase that they were in.",
            [*service, "phase"],
            registry=registry,
        )
        self.mirrored_requests = Counter(
            "penstock_gateway_mirrored_requests",
            "Copies of mirrored requests, by outcome: ok, error, dropped (limit reached, or no engine).",
            [*revision, "outcome"],
            registry=registry,
        )
        self.mirrored_first_byte_s = Histogram(
            "penstock_gateway_mirrored_time_to_first_byte_seconds",
            "Time from sending a copy of a mirrored request to the first byte of its response.",
            revision,
            buckets=SECONDS,
            registry=registry,
        )
        self.held_body_bytes = Gauge(
            "penstock_gateway_held_body_bytes",
            "Bytes of the bodies of requests that have no response yet.",
            registry=registry,
        )
        self.held_answer_bytes = Gauge(
            "penstock_gateway_held_answer_bytes",
            "Bytes of responses (not streams) that are held until they are complete and sent.",
            registry=registry,
        )
        self.loop_lag_s = Gauge(
            "penstock_gateway_loop_lag_seconds",
            "Delay of the event loop: how late its last timer ran.",
            registry=registry,
        )

        by_service = self.requests, self.waiting, self.wait_s, self.retries, self.disconnects
        self._by_service = by_service
        self._by_revision = (
            self.responses, self.in_flight, self.first_byte_s, self.cut, self.mirrored_requests,
            self.mirrored_first_byte_s,
        )  # fmt: skip

    def remove_stale_series(self, revisions: Mapping[str, Set[str]]) -> None:
        """Remove the series of all other services and revisions; prometheus_client never does.

        revisions: by the service "namespace/name".
        """
        metrics = (
            self.requests, self.responses, self.mirrored_requests, self.in_flight, self.waiting,
        )  # fmt: skip
        # Series with an empty service count requests that named no known model: they stay.
        for metric in metrics:
            for labels in _label_sets(metric):
                service, revision = labels["service"], labels.get("revision", "")
                if not service:
                    continue
                if service not in revisions:
                    for each in (*self._by_service, *self._by_revision):
                        each.remove_by_labels({"service": service})
                elif revision and revision not in revisions[service]:
                    for each in self._by_revision:
                        each.remove_by_labels({"service": service, "revision": revision})

    def render(self) -> bytes:
        """Return all series in Prometheus' text format."""
        return generate_latest(self._registry)


def _label_sets(metric: Counter | Gauge) -> list[dict[str, str]]:
    return [sample.labels for family in metric.collect() for sample in family.samples]
