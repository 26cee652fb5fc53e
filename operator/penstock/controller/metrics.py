"""The operator's Prometheus metrics of its own process: watches, queue, API calls and loops."""

from importlib.metadata import version
from typing import Any

from prometheus_client.registry import Collector

from penstock.clients.credentials import expiry_times_s
from penstock.clients.metric_set import MetricSet
from penstock.observability.metrics import operator as specs


class OperatorMetrics:
    """All metrics of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        self._set = made = MetricSet(specs.PROCESS)
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
        self._watch_restarts = made.counter(specs.WATCH_RESTARTS)
        self._api_requests = made.counter(specs.API_REQUESTS)
        self._api_request_s = made.histogram(specs.API_REQUEST_S)
        self._credential_expiry = made.gauge(specs.CREDENTIAL_EXPIRY)
        self._configuration: Any = None
        made.create_series([specs.RECONCILES, specs.WATCH_RESTARTS, specs.UNEXPECTED_ERRORS])
        made.gauge(specs.BUILD_INFO).labels(version("penstock")).set(1)

    def observe_credentials(self, configuration: Any) -> None:
        """Expose when the credentials of this configuration expire, also after they are rotated."""
        self._configuration = configuration

    def observe_api_request(self, verb: str, status: int | None, seconds: float) -> None:
        """Count a request to the API server. status: None without a response."""
        self._api_requests.labels(verb, "none" if status is None else str(status)).inc()
        self._api_request_s.labels(verb).observe(seconds)

    def count_watch_restart(self, resource: str) -> None:
        """Count that all objects of a watched kind are listed again."""
        self._watch_restarts.labels(resource).inc()

    def add_collector(self, collector: Collector) -> None:
        """Expose further series, which the collector makes at each scrape."""
        self.registry.register(collector)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all series as text, and its content type. accept: header of the request."""
        if self._configuration is not None:
            for credential, time_s in expiry_times_s(self._configuration).items():
                self._credential_expiry.labels(credential).set(time_s)
        return self._set.render(accept)
