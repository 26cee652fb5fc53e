"""Operator: the leader, its reconciles and passes, and its calls to the API server."""

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards import variables
from penstock.observability.dashboards.board import Board, Row
from penstock.observability.dashboards.panels import GREEN, GREY, Panel, areas, series, states
from penstock.observability.dashboards.promql import PROCESSES
from penstock.observability.metrics import operator as metrics

POD = "{{pod}}"


def board() -> Board:
    return Board(
        "operator",
        "Operator",
        "The operator's own work: reconciles, passes of the scaler and the judge, calls to the API server.",
        # The services are those of the annotations.
        (variables.datasource(), variables.namespace(), variables.service()),
        (_work(), _api()),
    )


def _work() -> Row:
    return Row("Work", *_reconciles(), *_loops())


def _reconciles() -> tuple[Panel, ...]:
    """Panels of the queue of services."""
    return (
        states(
            "Leader",
            "Which replica leads. Only that one scales and reconciles.",
            {"Standby": GREY, "Leader": GREEN},
            PROCESSES.max(metrics.LEADING, "pod"),
        ),
        areas(
            "Reconciles",
            "Reconciles of services. retry: the service changed meanwhile. error: repeated after a "
            "pause.",
            units.EventsPerSecond,
            PROCESSES.rate(metrics.RECONCILES, "outcome"),
        ),
        series(
            "Time of a reconcile",
            "Duration of a reconcile, and the time from a change to the start of its reconcile.",
            units.Seconds,
            (PROCESSES.quantile(0.95, metrics.RECONCILE_S, ""), "reconcile p95"),
            (PROCESSES.quantile(0.95, metrics.QUEUE_WAIT_S, ""), "wait p95"),
        ),
        series(
            "Queue",
            "Services that wait to be reconciled, and those that wait for a retry after an error.",
            units.Short,
            (PROCESSES.sum(metrics.QUEUE_DEPTH, "pod"), f"{POD} waiting"),
            (PROCESSES.sum(metrics.QUEUE_BACKOFFS, "pod"), f"{POD} after an error"),
        ),
    )


def _loops() -> tuple[Panel, ...]:
    """Panels of the loops over all services."""
    return (
        series(
            "Passes over all services",
            "Duration of a pass of the scaler and of the judge, p95.",
            units.Seconds,
            PROCESSES.quantile(0.95, metrics.LOOP_S, "loop"),
        ).span(12),
        series(
            "Unexpected errors",
            "Errors that a loop did not expect, since the operator started; it went on.",
            units.Short,
            PROCESSES.sum(metrics.UNEXPECTED_ERRORS, "loop"),
        ).span(12),
    )


def _api() -> Row:
    return Row(
        "API server",
        series(
            "Requests",
            "Requests to the API server by verb and HTTP status, without those of Kopf.",
            units.RequestsPerSecond,
            PROCESSES.rate(metrics.API_REQUESTS, "verb, code"),
        ),
        series(
            "Time of a request, p95",
            "Time until the API server's response began.",
            units.Seconds,
            PROCESSES.quantile(0.95, metrics.API_REQUEST_S, "verb"),
        ),
        series(
            "Watches",
            "Events from watches, and watches that were started again.",
            units.EventsPerSecond,
            (PROCESSES.rate(metrics.WATCH_EVENTS, "pod"), f"{POD} events"),
            (PROCESSES.rate(metrics.WATCH_RESTARTS, "resource"), "watch of {{resource}} again"),
        ),
        series(
            "Time until credentials expire",
            "Time until a credential for the API server expires.",
            units.Seconds,
            (
                f"{PROCESSES.max(metrics.CREDENTIAL_EXPIRY, 'pod, credential')} - time()",
                f"{POD} {{{{credential}}}}",
            ),
        ).span(24),
    )
