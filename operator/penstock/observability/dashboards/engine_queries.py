"""Queries of several rows of the engine dashboard."""

from penstock.observability.dashboards.panels import Query
from penstock.observability.dashboards.promql import ENGINES, Spec

POD = "{{pod}}"


def rate_by(spec: Spec, label: str) -> Query:
    """The rate of a counter, by service and a label."""
    return ENGINES.rate(spec, f"service, {label}"), f"{{{{service}}}} {{{{{label}}}}}"
