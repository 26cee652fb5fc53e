"""The metrics of the batch server."""

from penstock.core.batches.records import UNFINISHED
from penstock.observability.metrics.specs import Label, MetricSpec, counter, gauge

OUTCOME = Label("outcome", ("completed", "failed", "repeated"))
STATUS = Label("status", tuple(sorted(UNFINISHED)))

LINES = counter(
    "penstock_batch_lines_total",
    "Lines that got a result, and attempts that are repeated, as the gateway refused or lost them",
    OUTCOME,
)
BATCHES = gauge("penstock_batch_batches", "Batches that have not ended", STATUS)
RUNNING_LINES = gauge("penstock_batch_running_lines", "Lines that are at the gateway")
OLDEST_AGE = gauge(
    "penstock_batch_oldest_age_seconds",
    "Time since the creation of the oldest batch that has not ended; 0 without one",
)

METRICS: tuple[MetricSpec, ...] = (LINES, BATCHES, RUNNING_LINES, OLDEST_AGE)
