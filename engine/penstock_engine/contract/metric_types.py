"""Types of metrics, their default labels, and buckets of histograms."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

LABELS = ("engine", "model_name")

LATENCY_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
BETWEEN_TOKENS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CHOICES = (1, 2, 5, 10, 20)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)


def token_buckets(max_model_len: int) -> tuple[int, ...]:
    """Buckets for numbers of tokens: 1, 2, 5, 10, 20, 50, … up to max_model_len."""
    buckets = []
    scale = 1
    while scale <= max_model_len:
        buckets += [m * scale for m in (1, 2, 5) if m * scale <= max_model_len]
        scale *= 10
    return tuple(buckets)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """Specification of one metric.

    name: as exposed, with the suffix `_total` if vLLM has it. buckets: upper bounds of a histogram;
    None: token_buckets of the maximum model length. values: those of the label that is not one of
    LABELS, if they are known before the first event, so that every series exists from the start.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = LABELS
    buckets: tuple[float, ...] | None = None
    values: tuple[str, ...] = ()


def _labeled(
    kind: Kind,
    name: str,
    description: str,
    *,
    labels: tuple[str, ...] = LABELS,
    extra_labels: tuple[str, ...] = (),
    values: tuple[str, ...] = (),
) -> MetricSpec:
    """A metric with the given labels, followed by extra_labels."""
    return MetricSpec(name, kind, description, (*labels, *extra_labels), values=values)


gauge = partial(_labeled, "gauge")
counter = partial(_labeled, "counter")


def histogram(
    name: str, description: str, *, buckets: tuple[float, ...] | None = None
) -> MetricSpec:
    """A histogram with the default labels."""
    return MetricSpec(name, "histogram", description, buckets=buckets)
