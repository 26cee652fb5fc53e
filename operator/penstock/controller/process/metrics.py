"""Prometheus metrics of the operator's process: watches, queue, API calls and loops."""

from prometheus_client.registry import Collector

from penstock.clients.metrics.process import ProcessMetrics
from penstock.observability.metrics import operator as specs


class OperatorMetrics(ProcessMetrics):
    """All metrics of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        super().__init__(
            specs.PROCESS,
            build_info=specs.BUILD_INFO,
            watch_restarts=specs.WATCH_RESTARTS,
            credential_expiry=specs.CREDENTIAL_EXPIRY,
        )
        made = self.metric_set
        self.registry = made.registry
        self.leading = made.gauge(specs.LEADING)
        self.reconciles = made.counter(specs.RECONCILES)
        self.reconcile_s = made.histogram(specs.RECONCILE_S)
        self.queue_depth = made.gauge(specs.QUEUE_DEPTH)
        self.queue_backoffs = made.gauge(specs.QUEUE_BACKOFFS)
        self.queue_wait_s = made.histogram(specs.QUEUE_WAIT_S)
        self.watch_events = made.counter(specs.WATCH_EVENTS)
        self.unexpected_errors = made.counter(specs.UNEXPECTED_ERRORS)
        self.loop_s = made.histogram(specs.LOOP_S)
        self._api_requests = made.counter(specs.API_REQUESTS)
        self._api_request_s = made.histogram(specs.API_REQUEST_S)
        made.create_series([specs.RECONCILES, specs.UNEXPECTED_ERRORS])

    def observe_api_request(self, verb: str, status: int | None, seconds: float) -> None:
        """Count a request to the API server. status: None without a response."""
        self._api_requests.labels(verb, "none" if status is None else str(status)).inc()
        self._api_request_s.labels(verb).observe(seconds)

    def add_collector(self, collector: Collector) -> None:
        """Expose further series, which the collector builds at each scrape."""
        self.registry.register(collector)
