"""The operator's Prometheus metrics of its own process: watches, queue, API calls and loops."""

from penstock.clients.metric_set import MetricSet
from penstock.observability.metrics import operator as specs


class OperatorMetrics:
    """All metrics of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        self._set = made = MetricSet(specs.PROCESS)
        self.registry = made.registry
        self.leading = made.gauge(specs.LEADING)
        self.watch_events = made.counter(specs.WATCH_EVENTS)
        self.unexpected_errors = made.counter(specs.UNEXPECTED_ERRORS)

    def render(self) -> bytes:
        """Return all series in Prometheus' text format."""
        return self._set.render()
