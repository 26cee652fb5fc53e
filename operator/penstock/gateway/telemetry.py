"""The gateway's own metrics. Names are written here and nowhere else."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

FIRST_BYTE_BUCKETS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 20, 40, 80, 160, 320,
)  # fmt: skip


class Telemetry:
    """One registry. service: namespace/name, or empty when the model is unknown."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "penstock_gateway_requests",
            "Requests by what the client got: a status code, cut or disconnected.",
            ("service", "result"),
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "penstock_gateway_in_flight",
            "Requests that are waiting, connecting or streaming.",
            ("service",),
            registry=self.registry,
        )
        self.waiting = Gauge(
            "penstock_gateway_waiting",
            "Requests that wait for a pod to become ready.",
            ("service",),
            registry=self.registry,
        )
        self.retries = Counter(
            "penstock_gateway_retries",
            "Requests sent to another pod before the first byte.",
            ("service",),
            registry=self.registry,
        )
        self.first_byte = Histogram(
            "penstock_gateway_first_byte_seconds",
            "From the request's arrival to the first byte of its answer.",
            ("service",),
            buckets=FIRST_BYTE_BUCKETS_S,
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        return generate_latest(self.registry)
