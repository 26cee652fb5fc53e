"""Types that specify a metric and its labels."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

# Upper bounds of times, in seconds: of requests to engines, and of calls and loops of the operator.
REQUEST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
CALL_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

# Suffixes of the samples that a metric has, by its type.
_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
}


@dataclass(frozen=True, slots=True)
class Label:
    """A label of a metric. values: all that it can have, or what bounds their number."""

    name: str
    values: tuple[str, ...] | str

    @property
    def bound(self) -> str:
        """The values, or what bounds their number, as text."""
        return self.values if isinstance(self.values, str) else ", ".join(self.values)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """Specification of one metric.

    name: as exposed, so that of a counter ends in `_total`. buckets: upper bounds of a histogram.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of the samples as exposed: those of a histogram have suffixes."""
        return tuple(self.name + suffix for suffix in _SUFFIXES[self.kind])


def counter(name: str, description: str, *labels: Label) -> MetricSpec:
    """A counter. name: as exposed, with `_total`."""
    assert name.endswith("_total"), name
    return MetricSpec(name, "counter", description, labels)


def gauge(name: str, description: str, *labels: Label) -> MetricSpec:
    return MetricSpec(name, "gauge", description, labels)


def histogram(
    name: str, description: str, *labels: Label, buckets: tuple[float, ...] = REQUEST_S
) -> MetricSpec:
    return MetricSpec(name, "histogram", description, labels, buckets)


# Labels that metrics of operator and gateway share.
SERVICE = Label("service", "`namespace/name` of the InferenceServices that exist")
REVISION = Label("revision", "revisions of the service that have pods or traffic")
OBJECTIVE = Label("objective", ("ttft", "tpot"))
VERSION = Label("version", "one")
CREDENTIAL = Label("credential", ("ca", "token"))


def service_counter(name: str, description: str, *labels: Label) -> MetricSpec:
    """A counter with a series of each service. labels: besides SERVICE, which comes first."""
    return counter(name, description, SERVICE, *labels)


def service_gauge(name: str, description: str, *labels: Label) -> MetricSpec:
    return gauge(name, description, SERVICE, *labels)


def service_histogram(
    name: str, description: str, *labels: Label, buckets: tuple[float, ...] = REQUEST_S
) -> MetricSpec:
    return histogram(name, description, SERVICE, *labels, buckets=buckets)
