"""Builds PromQL expressions from the specifications of metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.observability.metrics import operator
from penstock.observability.metrics.specs import MetricSpec
from penstock_engine.contract.metric_types import MetricSpec as EngineMetricSpec

Spec = MetricSpec | EngineMetricSpec

# Labels that the scrape configuration gives to all series, and those that it gives to the series of engines.
SCRAPED = ("namespace", "pod")
SCRAPED_OF_ENGINES = ("service", "revision", *SCRAPED)
# Grafana replaces it with at least four scrape intervals.
WINDOW = "$__rate_interval"


def labels_of(spec: Spec) -> set[str]:
    """Labels of the series of a metric in Prometheus."""
    if isinstance(spec, MetricSpec):
        return {*spec.label_names, *SCRAPED}
    return {*spec.labels, *SCRAPED_OF_ENGINES}


@dataclass(frozen=True, slots=True)
class Scope:
    """Restricts series by dashboard variables: those of these names that the series have as labels."""

    variables: tuple[str, ...]

    def select(self, spec: Spec, *matchers: str, suffix: str = "") -> str:
        """A selector of the metric's series. suffix: of the sample of a histogram."""
        known = labels_of(spec)
        chosen = [f'{each}=~"${each}"' for each in self.variables if each in known]
        text = ",".join([*chosen, *matchers])
        return f"{spec.name}{suffix}{{{text}}}" if text else f"{spec.name}{suffix}"

    def sum(self, spec: Spec, by: str, *matchers: str) -> str:
        """Sum by labels, in which each series about a service counts once.

        For some minutes after a change of the leader, Prometheus has the series of both operators.
        """
        series = self.select(spec, *matchers)
        if isinstance(spec, MetricSpec) and spec in operator.SERVICES:
            series = f"max by ({', '.join(spec.label_names)}) ({series})"
        return f"sum by ({by}) ({series})"

    def max(self, spec: Spec, by: str, *matchers: str) -> str:
        return f"max by ({by}) ({self.select(spec, *matchers)})"

    def rate(
        self, spec: Spec, by: str, *matchers: str, suffix: str = "", window: str = WINDOW
    ) -> str:
        """Increase per second, summed by labels."""
        selected = self.select(spec, *matchers, suffix=suffix)
        return f"sum by ({by}) (rate({selected}[{window}]))"

    def quantile(self, fraction: float, spec: Spec, by: str) -> str:
        """Quantile of a histogram, over all processes with the same values of the labels `by`."""
        assert spec.kind == "histogram", spec.name
        buckets = self.rate(spec, ", ".join(filter(None, ("le", by))), suffix="_bucket")
        return f"histogram_quantile({fraction:g}, {buckets})"

    def mean(self, spec: Spec, by: str) -> str:
        """Mean of a histogram's observations."""
        assert spec.kind == "histogram", spec.name
        return ratio(self.rate(spec, by, suffix="_sum"), self.rate(spec, by, suffix="_count"))

    def state(self, spec: Spec, by: str, label: str, values: Sequence[str], *matchers: str) -> str:
        """Number of the value that the label has, in the order of `values`.

        For a metric that is 1 with the current value of the label. A state timeline shows numbers as texts.
        """
        matching = (f'{label}="{value}"' for value in values)
        return " or ".join(
            f"{self.max(spec, by, *matchers, each)} * {number}"
            for number, each in enumerate(matching)
        )


def ratio(numerator: str, denominator: str) -> str:
    """A quotient without results where the denominator is 0."""
    return f"{numerator} / ({denominator} > 0)"


def or_zero(counted: str, all_of_them: str) -> str:
    """The rate of rare events, with 0 where there were none: their series begin with the first one."""
    return f"({counted} or 0 * {all_of_them})"


SERVICES = Scope(("service",))
ENGINES = Scope(("service", "revision", "pod"))
PROCESSES = Scope(())
