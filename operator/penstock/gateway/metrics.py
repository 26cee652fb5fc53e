"""The gateway's Prometheus metrics. Label service: "namespace/name", empty while it is not known."""

from collections.abc import Mapping, Set

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)


class Metrics:
    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        service, revision = ["service"], ["service", "revision"]
        self.requests = Counter(
            "penstock_gateway_requests", "Requests that came in.", service, registry=registry
        )
        self.responses = Counter(
            "penstock_gateway_responses",
            "Answers, by HTTP status; 499: the client left before there was one.",
            [*revision, "code"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "penstock_gateway_requests_in_flight",
            "Requests that an engine is working on.",
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
            "How long requests waited for an engine, of those that had to.",
            service,
            buckets=SECONDS,
            registry=registry,
        )
        self.first_byte_s = Histogram(
            "penstock_gateway_time_to_first_byte_seconds",
            "From a request's arrival to the first byte of its answer.",
            revision,
            buckets=SECONDS,
            registry=registry,
        )
        self.retries = Counter(
            "penstock_gateway_retries",
            "Attempts that failed before the first byte, by why: connect, reset, unavailable, error.",
            [*service, "reason"],
            registry=registry,
        )
        self.cut = Counter(
            "penstock_gateway_streams_cut",
            "Streams that ended with an error event, by cause: upstream, timeout, shutdown, client.",
            [*revision, "cause"],
            registry=registry,
        )
        self.disconnects = Counter(
            "penstock_gateway_disconnects",
            "Requests whose client left, by the phase that they were in.",
            [*service, "phase"],
            registry=registry,
        )
        self.shadows = Counter(
            "penstock_gateway_shadow_requests",
            "Copies of requests, by outcome: ok, error, dropped (no room for it, or no engine).",
            [*revision, "outcome"],
            registry=registry,
        )
        self.shadow_first_byte_s = Histogram(
            "penstock_gateway_shadow_time_to_first_byte_seconds",
            "From when a copy was sent to the first byte of its answer.",
            revision,
            buckets=SECONDS,
            registry=registry,
        )
        self.held_body_bytes = Gauge(
            "penstock_gateway_held_body_bytes",
            "Bodies of requests that have no answer yet.",
            registry=registry,
        )
        self.held_answer_bytes = Gauge(
            "penstock_gateway_held_answer_bytes",
            "Bytes of answers (not streams) that are held until they are complete and sent.",
            registry=registry,
        )
        self.loop_lag_s = Gauge(
            "penstock_gateway_loop_lag_seconds",
            "How late the event loop is.",
            registry=registry,
        )

        by_service = self.requests, self.waiting, self.wait_s, self.retries, self.disconnects
        self._by_service = by_service
        self._by_revision = (
            self.responses, self.in_flight, self.first_byte_s, self.cut, self.shadows,
            self.shadow_first_byte_s,
        )  # fmt: skip

    def keep_only(self, revisions: Mapping[str, Set[str]]) -> None:
        """Remove the series of all other services and revisions; prometheus_client never does.

        revisions: of each existing service, "namespace/name".
        """
        # Series with an empty service count requests that named no known model: they stay.
        for metric in (self.requests, self.responses, self.shadows, self.in_flight, self.waiting):
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
        return generate_latest(self._registry)


def _label_sets(metric: Counter | Gauge) -> list[dict[str, str]]:
    return [sample.labels for family in metric.collect() for sample in family.samples]
