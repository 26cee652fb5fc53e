"""Metrics of the batch server."""

from collections import Counter
from collections.abc import Sequence

from penstock.clients.metrics.metric_set import MetricSet
from penstock.core.batches.records import UNFINISHED, Batch
from penstock.observability.metrics import batch as specs


class BatchMetrics:
    """All metrics of one process. lines: by outcome."""

    def __init__(self) -> None:
        self._set = MetricSet(specs.METRICS)
        self.lines = self._set.counter(specs.LINES)
        self._set.create_series([specs.LINES])
        self._batches = self._set.gauge(specs.BATCHES)
        self._running_lines = self._set.gauge(specs.RUNNING_LINES)
        self._oldest_age_s = self._set.gauge(specs.OLDEST_AGE)

    def note_batches(self, batches: Sequence[Batch], num_running: int, now_s: float) -> None:
        """Set the gauges. batches: those that have not ended. num_running: lines at the gateway."""
        by_status = Counter(each.status for each in batches)
        for status in UNFINISHED:
            self._batches.labels(status).set(by_status[status])
        self._running_lines.set(num_running)
        oldest_s = min((each.created_s for each in batches), default=now_s)
        self._oldest_age_s.set(max(0.0, now_s - oldest_s))

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return all series as text, and its content type. accept: header of the request."""
        return self._set.render(accept)
