"""Creates prometheus_client's metrics from a list of specifications, and exposes them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from penstock.observability.metrics.specs import SERVICE, MetricSpec
from penstock.observability.service_samples import Sample
from penstock_engine.telemetry.exposition import render

# The `_created` series would double the number of series, and nothing reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]

_FAMILIES: dict[str, Callable[[MetricSpec], Any]] = {
    "counter": lambda spec: CounterMetricFamily(spec.name, spec.help, labels=spec.label_names),
    "gauge": lambda spec: GaugeMetricFamily(spec.name, spec.help, labels=spec.label_names),
}
_CLASSES: dict[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}


class MetricSet:
    """The metrics of one process, in a registry of their own. specs: each name once."""

    def __init__(self, specs: Iterable[MetricSpec]) -> None:
        self.registry = CollectorRegistry()
        self._specs = tuple(specs)
        self._metrics = {spec.name: _make(spec, self.registry) for spec in self._specs}

    def counter(self, spec: MetricSpec) -> Counter:
        assert spec.kind == "counter"
        return cast(Counter, self._metrics[spec.name])

    def gauge(self, spec: MetricSpec) -> Gauge:
        assert spec.kind == "gauge"
        return cast(Gauge, self._metrics[spec.name])

    def histogram(self, spec: MetricSpec) -> Histogram:
        assert spec.kind == "histogram"
        return cast(Histogram, self._metrics[spec.name])

    def create_series(self, specs: Iterable[MetricSpec], **labels: str) -> None:
        """Create the series with these labels and each value of the others, at 0 if they are new.

        A counter must exist before its first event: `increase` in PromQL does not see the first value.
        """
        for spec in specs:
            for values in _label_values(spec, labels):
                self._metrics[spec.name].labels(*values)

    def remove_stale(self, is_stale: Callable[[Mapping[str, str]], bool]) -> None:
        """Remove the series of what is gone; prometheus_client never does.

        is_stale: called with the labels of each series that has the label service. It finds those of
        histograms by the service and revision of stale counters and gauges: their other labels have
        listed values.
        """
        stale: set[tuple[str, str]] = set()
        for spec, metric in self._of_services("counter", "gauge"):
            label_sets = [sample.labels for family in metric.collect() for sample in family.samples]
            for labels in filter(is_stale, label_sets):
                stale.add((labels["service"], labels.get("revision", "")))
                metric.remove(*(labels[name] for name in spec.label_names))
        for spec, metric in self._of_services("histogram"):
            for service, revision in stale:
                known = {"service": service, "revision": revision}
                if is_stale({name: known[name] for name in spec.label_names if name in known}):
                    for values in _label_values(spec, known):
                        metric.remove(*values)

    def remove_others(self, label: str, values: Collection[str]) -> None:
        """Remove the series of counters and gauges that have another value of a label than one of these."""
        for spec in self._specs:
            if label not in spec.label_names or spec.kind == "histogram":
                continue
            metric: Any = self._metrics[spec.name]
            for sample in [each for family in metric.collect() for each in family.samples]:
                if sample.labels[label] not in values:
                    metric.remove(*(sample.labels[name] for name in spec.label_names))

    def _of_services(self, *kinds: str) -> Iterator[tuple[MetricSpec, Any]]:
        """Metrics of these kinds that have the label service."""
        for spec in self._specs:
            if spec.kind in kinds and SERVICE in spec.labels:
                yield spec, self._metrics[spec.name]

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all series as text, and its content type. accept: header of the request."""
        return render(self.registry, accept)


def _label_values(spec: MetricSpec, known: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield all combinations of a metric's label values. known: the values of some labels, by name."""
    return product(*([known[e.name]] if e.name in known else e.values for e in spec.labels))


def families(specs: Iterable[MetricSpec], samples: Iterable[tuple[str, Sample]]) -> list[Metric]:
    """Build metric families of samples, each with its service, in the order of the specs."""
    made = {spec.name: _FAMILIES[spec.kind](spec) for spec in specs}
    for service, sample in samples:
        made[sample.spec.name].add_metric((service, *sample.labels), sample.value)
    return [family for family in made.values() if family.samples]


def _make(spec: MetricSpec, registry: CollectorRegistry) -> Any:
    # prometheus_client adds `_total` to the name of a counter.
    name = spec.name.removesuffix("_total") if spec.kind == "counter" else spec.name
    options = {"buckets": spec.buckets} if spec.kind == "histogram" else {}
    return _CLASSES[spec.kind](name, spec.help, spec.label_names, registry=registry, **options)
