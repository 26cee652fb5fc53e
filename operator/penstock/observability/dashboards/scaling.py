"""Scaling decisions: desired and actual replicas, with the reason of each decision."""

from collections.abc import Mapping

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards import variables
from penstock.observability.dashboards.board import Board, Row
from penstock.observability.dashboards.panels import (
    BLUE,
    GREEN,
    GREY,
    RED,
    YELLOW,
    Panel,
    series,
    states,
)
from penstock.observability.dashboards.promql import SERVICES, or_zero
from penstock.observability.metrics import gateway, operator, operator_labels
from penstock_engine.contract import metric_specs as engine

REASONS: Mapping[str, tuple[str, str]] = {
    "Steady": ("The number is right", GREEN),
    "ScaleUp": ("More replicas for the load", BLUE),
    "ScaleDownDelayed": ("Fewer would do: waits to be sure", GREY),
    "ScaleDown": ("One replica less", "purple"),
    "ScaledToZero": ("No requests for idleAfter: no replicas", "#ffcb7d"),
    "Swap": ("Cheaper variants replace others", "#6ed0e0"),
    "AtMaximum": ("maxReplicas limits it", YELLOW),
    "Bounded": ("Bounds of the spec changed it", "#b877d9"),
    "OverBudget": ("A quota limits it", "orange"),
    "NoRequests": ("Held: no request has come yet", "#8ab8ff"),
    "MetricsMissing": ("Held: metrics are missing", RED),
}
"""Reason codes of the scaling rules, each in words and with a color."""

FREE = {"No": GREEN, "Yes": RED}


def board() -> Board:
    return Board(
        "scaling",
        "Scaling decisions",
        "How many replicas each service should have, how many it has, and why.",
        (variables.datasource(), variables.namespace(), variables.service()),
        (_decisions(), _inputs(), _starts()),
    )


def _decisions() -> Row:
    return Row("Decisions", *_last_decision(), *_steps())


def _last_decision() -> tuple[Panel, ...]:
    """Panels of the last decision: its replicas, and its reason in words."""
    reason = SERVICES.state(
        operator.LAST_DECISION_REASON,
        "service",
        operator_labels.DECISION_REASON.name,
        tuple(REASONS),
    )
    return (
        series(
            "Wanted and actual replicas",
            "Replicas that the last decision wants, those that the Deployments request and those "
            "that are ready, between the bounds of the spec.",
            units.Short,
            (SERVICES.sum(operator.DESIRED_REPLICAS, "service"), "{{service}} wanted"),
            (SERVICES.sum(operator.PROVISIONED_REPLICAS, "service"), "{{service}} requested"),
            (SERVICES.sum(operator.READY_REPLICAS, "service"), "{{service}} ready"),
            (SERVICES.max(operator.MIN_REPLICAS, "service"), "{{service}} minReplicas"),
            (SERVICES.max(operator.MAX_REPLICAS, "service"), "{{service}} maxReplicas"),
        ).span(24),
        states(
            "Reason",
            "Why the service has its number of replicas, by the last decision. `penstock explain` "
            "prints the numbers behind it.",
            dict(REASONS.values()),
            (reason, "{{service}}"),
        ),
    )


def _steps() -> tuple[Panel, ...]:
    """Panels of decisions over time, by reason, direction and variant."""
    return (
        series(
            "Decisions by reason",
            "Decisions per minute: one for each pass of the scaler over a service.",
            units.CountsPerMinute,
            (
                f"60 * {SERVICES.rate(operator.DECISIONS, 'service, reason')}",
                "{{service}} {{reason}}",
            ),
        ),
        series(
            "Scale steps",
            "Decisions that changed the number of replicas, since the operator leads.",
            units.Short,
            SERVICES.max(operator.SCALE_STEPS, "service, direction"),
        ),
        series(
            "Replicas by variant",
            "Wanted and ready replicas of each variant.",
            units.Short,
            (
                SERVICES.sum(operator.DESIRED_REPLICAS, "service, variant"),
                "{{service}} {{variant}} wanted",
            ),
            (
                SERVICES.sum(operator.READY_REPLICAS, "service, variant"),
                "{{service}} {{variant}} ready",
            ),
        ),
    )


def _inputs() -> Row:
    return Row("Inputs of decisions", *_load(), *_limits())


def _load() -> tuple[Panel, ...]:
    """Panels of the load that decisions follow."""
    misses, counted = (
        SERVICES.rate(spec, "service, objective")
        for spec in (gateway.OBJECTIVE_MISSES, gateway.OBJECTIVE_REQUESTS)
    )
    return (
        series(
            "Load",
            "Requests that arrive at the gateways.",
            units.RequestsPerSecond,
            SERVICES.rate(gateway.REQUESTS, "service"),
        ),
        series(
            "Queues",
            "Requests that wait in the gateways or in engines.",
            units.Short,
            (SERVICES.sum(gateway.WAITING, "service"), "{{service}} gateways"),
            (SERVICES.sum(engine.WAITING, "service"), "{{service}} engines"),
        ),
        series(
            "Misses of objectives",
            "Requests per second that were late, shed or failed.",
            units.RequestsPerSecond,
            (or_zero(misses, counted), "{{service}} {{objective}}"),
        ),
    )


def _limits() -> tuple[Panel, ...]:
    """Panels of what holds a decision back."""
    return (
        states(
            "Replicas held because metrics are missing",
            "Whether metrics of engines or gateways are missing, so that no replica is removed.",
            FREE,
            SERVICES.max(operator.BLIND, "service"),
        ).span(8),
        states(
            "At the maximum",
            "Whether more replicas are needed than maxReplicas or a quota allows.",
            FREE,
            SERVICES.max(operator.AT_MAXIMUM, "service"),
        ).span(8),
        series(
            "Unreadable engines",
            "Ready engines whose metrics could not be read at the last pass.",
            units.Short,
            SERVICES.max(operator.UNREADABLE_ENGINES, "service"),
        ),
    )


def _starts() -> Row:
    return Row(
        "Start-up of engines",
        series(
            "Longest wait for an engine",
            "Longest time for which one of the engine pods has not been ready.",
            units.Seconds,
            SERVICES.max(operator.UNREADY_S, "service"),
        ).span(12),
        series(
            "Phases of the start",
            "Time that each phase of an engine's start took, as a mean over the engines.",
            units.Seconds,
            (
                f"avg by (service, phase) ({SERVICES.select(engine.STARTUP_SECONDS)})",
                "{{service}} {{phase}}",
            ),
        ).span(12),
    )
