"""Metrics of requests for adapters, with a bounded number of series."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from penstock.clients.metrics.metric_set import MetricSet
from penstock.gateway.limits.shared_limit import Allocation, SharedLimit
from penstock.gateway.snapshots.adapter import Adapter
from penstock.observability.metrics import gateway as specs

COUNTERS = (
    specs.ADAPTER_REQUESTS, specs.ADAPTER_MISSES, specs.ADAPTER_LOADS, specs.ADAPTER_LOAD_FAILURES,
)  # fmt: skip


class AdapterMetrics:
    """Counts requests for adapters and loads. made: the metrics of the gateway."""

    def __init__(self, made: MetricSet) -> None:
        self._made = made
        self._requests = made.counter(specs.ADAPTER_REQUESTS)
        self._misses = made.counter(specs.ADAPTER_MISSES)
        self._loads = made.counter(specs.ADAPTER_LOADS)
        self._load_failures = made.counter(specs.ADAPTER_LOAD_FAILURES)
        self._waiting = made.gauge(specs.ADAPTER_WAITING)
        self._load_s = made.histogram(specs.ADAPTER_LOAD_S)
        self._labelled: dict[tuple[str, str], Allocation] = {}
        self._series = SharedLimit(specs.MAX_ADAPTERS)

    def count_request(self, adapter: Adapter) -> None:
        """Count a request that arrived."""
        self._requests.labels(*self._labels(adapter)).inc()

    def count_miss(self, adapter: Adapter) -> None:
        """Count a request for an adapter that no engine had in memory."""
        self._misses.labels(*self._labels(adapter)).inc()

    def count_load(self, adapter: Adapter, took_s: float, *, is_failed: bool) -> None:
        """Count a load that has ended."""
        counter = self._load_failures if is_failed else self._loads
        counter.labels(*self._labels(adapter)).inc()
        self._load_s.labels(adapter.service).observe(took_s)

    @contextmanager
    def waiting(self, adapter: Adapter) -> Iterator[None]:
        """Count a request that waits for a load while the block runs."""
        gauge = self._waiting.labels(*self._labels(adapter))
        gauge.inc()
        try:
            yield
        finally:
            gauge.dec()

    def release_others(self, adapters: Collection[tuple[str, str]]) -> None:
        """Give back the series of all other adapters. adapters: each with its service."""
        for labels in self._labelled.keys() - set(adapters):
            self._labelled.pop(labels).release()

    def _labels(self, adapter: Adapter) -> tuple[str, str]:
        """The service and the name of an adapter; of the first of each service, to bound the series."""
        labels = adapter.service, adapter.name
        if labels in self._labelled:
            return labels
        allocation = Allocation(self._series, adapter.service)
        if allocation.take(1):
            self._labelled[labels] = allocation
        else:
            labels = adapter.service, specs.OTHER_ADAPTERS
        self._made.create_series(COUNTERS, service=labels[0], adapter=labels[1])
        return labels
