"""Marks on the time axis of every dashboard: scale steps, rollouts and changes of the spec."""

from dataclasses import dataclass

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from penstock.observability.dashboards.panels import DATASOURCE
from penstock.observability.dashboards.promql import SERVICES, Spec
from penstock.observability.metrics.operator import (
    ROLLOUT_PHASE,
    ROLLOUT_PHASE_START,
    SCALE_STEPS,
    SPEC_GENERATION,
)

# Step of annotation queries, which have no variable for it. A mark is at most this far from its event.
STEP = "1m"


class PrometheusAnnotation(dashboard.AnnotationQuery):
    """An annotation of a Prometheus data source, with the fields that the SDK lacks."""

    def __init__(self, query: "Mark") -> None:
        super().__init__(
            name=query.name, datasource=DATASOURCE, icon_color=query.color, expr=query.expression
        )
        self._query = query

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {
            "step": STEP,
            "titleFormat": self._query.title,
            "textFormat": "{{service}}",
            "tagKeys": "service",
            "useValueForTime": self._query.value_is_time,
        }


@dataclass(frozen=True, slots=True)
class Mark(Builder[dashboard.AnnotationQuery]):
    """A kind of mark. expression: has results where a mark is, or the times of the marks in ms as values."""

    name: str
    color: str
    title: str
    expression: str
    value_is_time: bool = False

    def build(self) -> dashboard.AnnotationQuery:
        return PrometheusAnnotation(self)


def _has_grown(spec: Spec, by: str) -> str:
    """Expression: the series grew within the step, or began above 0."""
    now = SERVICES.max(spec, by)
    before = f"max by ({by}) ({SERVICES.select(spec)} offset {STEP})"
    return f"({now}) > ({before} or 0 * {now})"


SCALE = Mark(
    "Scale steps", "blue", "Replicas: {{direction}}", _has_grown(SCALE_STEPS, "service, direction")
)
ROLLOUT = Mark(
    "Rollouts",
    "purple",
    "Rollout: {{phase}}",
    f"1000 * ({SERVICES.max(ROLLOUT_PHASE, 'service, phase')}) * on (service) group_left () "
    f"({SERVICES.max(ROLLOUT_PHASE_START, 'service')})",
    value_is_time=True,
)
# A new service has no mark: its series did not exist a step ago.
SPEC = Mark(
    "Spec changes",
    "orange",
    "Spec changed",
    f"({SERVICES.max(SPEC_GENERATION, 'service')}) > "
    f"(max by (service) ({SERVICES.select(SPEC_GENERATION)} offset {STEP}))",
)

MARKS = (SCALE, ROLLOUT, SPEC)
