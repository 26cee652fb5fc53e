"""Overview: how well each model is served, and by what."""

from grafana_foundation_sdk.models import units

from penstock.observability.alerts.burn_rate import BUDGET, miss_ratio
from penstock.observability.dashboards import variables
from penstock.observability.dashboards.board import Board, Row
from penstock.observability.dashboards.panels import (
    GREEN,
    RED,
    YELLOW,
    Panel,
    areas,
    fractions,
    series,
    states,
)
from penstock.observability.dashboards.promql import SERVICES, or_zero, ratio
from penstock.observability.metrics import gateway, operator
from penstock_engine.contract import metric_specs as engine

READY = {"Not ready": RED, "Unknown": YELLOW, "Ready": GREEN}


def board() -> Board:
    return Board(
        "overview",
        "Overview",
        "How well each model is served: latency against its objectives, tokens, and replicas.",
        (
            variables.datasource(),
            variables.namespace(),
            variables.model(),
            variables.service(by_model=True),
        ),
        (_objectives(), _traffic(), _replicas()),
    )


def objective(name: str) -> tuple[str, str]:
    """The line of an objective in a panel of latency."""
    return (
        SERVICES.max(operator.OBJECTIVE_S, "service", f'objective="{name}"'),
        "{{service}} objective",
    )


def _objectives() -> Row:
    return Row("Objectives", *_latencies(), *_attainment())


def _latencies() -> tuple[Panel, ...]:
    """Panels of latency against the objectives."""
    return (
        series(
            "Time to the first token, p95",
            "From a request's arrival at the gateway to the first byte of its response, with the "
            "objective. Of a response that is no stream the first byte is also the last.",
            units.Seconds,
            SERVICES.quantile(0.95, gateway.FIRST_BYTE_S, "service"),
            objective("ttft"),
        ),
        series(
            "Time per output token, p95",
            "Mean time between the tokens of a stream, with the objective.",
            units.Seconds,
            SERVICES.quantile(0.95, gateway.TPOT_S, "service"),
            objective("tpot"),
        ),
    )


def _attainment() -> tuple[Panel, ...]:
    """Panels of how well the objectives are met."""
    burn = f'{miss_ratio("5m")}{{service=~"$service"}} / on (service) group_left () {BUDGET}'
    return (
        fractions(
            "Attainment",
            "Fraction of the requests of the last hour that met each objective, and the fraction "
            "that must. Requests that were shed or failed did not.",
            SERVICES.max(operator.ATTAINMENT, "service, objective"),
            (SERVICES.max(operator.OBJECTIVE_TARGET, "service"), "{{service}} target"),
        ),
        series(
            "Error budget left",
            "Fraction of the error budget of the last hour that is left: 100 % without a miss, 0 at "
            "the target, below 0 when the objective is missed.",
            units.PercentUnit,
            SERVICES.max(operator.ERROR_BUDGET_LEFT, "service, objective"),
        ).max(1),
        series(
            "Burn rate",
            "How fast the last 5 minutes used up the error budget: at 1 it lasts for exactly 30 "
            "days. Recorded by the alert rules.",
            units.Short,
            (burn, "{{service}} {{objective}}"),
        ),
        states(
            "Ready",
            "The condition Ready of each service.",
            READY,
            SERVICES.state(
                operator.CONDITION_STATUS,
                "service",
                "status",
                ("False", "Unknown", "True"),
                'type="Ready"',
            ),
        ).span(8),
    )


def _traffic() -> Row:
    return Row("Traffic", *_requests(), *_use())


def _requests() -> tuple[Panel, ...]:
    """Panels of what arrives, and of the work that it is."""
    requests = SERVICES.rate(gateway.REQUESTS, "service")
    failed = SERVICES.rate(gateway.RESPONSES, "service", 'code=~"5.."')
    return (
        series(
            "Requests",
            "Requests that arrived, and those that got no answer: errors of the gateway's own and "
            "5xx responses of engines.",
            units.RequestsPerSecond,
            (requests, "{{service}}"),
            (or_zero(failed, requests), "{{service}} failed"),
        ),
        series(
            "Tokens in and out",
            "Prompt tokens that engines computed, and tokens that they generated, per second.",
            units.CountsPerSecond,
            (SERVICES.rate(engine.PROMPT_TOKENS, "service"), "{{service}} in"),
            (SERVICES.rate(engine.GENERATION_TOKENS, "service"), "{{service}} out"),
        ),
        fractions(
            "Prefix cache hits",
            "Fraction of the prompt tokens whose KV blocks were in an engine's cache already.",
            (
                ratio(
                    SERVICES.rate(engine.PREFIX_HITS, "service"),
                    SERVICES.rate(engine.PREFIX_QUERIES, "service"),
                ),
                "{{service}}",
            ),
        ),
    )


def _use() -> tuple[Panel, ...]:
    """Panels of how much of the engines is in use."""
    return (
        series(
            "Running and waiting requests",
            "Requests that engines run, and those that wait in engines or in gateways.",
            units.Short,
            (SERVICES.sum(engine.RUNNING, "service"), "{{service}} running"),
            (SERVICES.sum(engine.WAITING, "service"), "{{service}} waiting in engines"),
            (SERVICES.sum(gateway.WAITING, "service"), "{{service}} waiting in gateways"),
        ).span(12),
        fractions(
            "KV cache use",
            "Fraction of the KV cache blocks in use: mean over the engines, and of the fullest one.",
            (f"avg by (service) ({SERVICES.select(engine.KV_USAGE)})", "{{service}} mean"),
            (SERVICES.max(engine.KV_USAGE, "service"), "{{service}} fullest"),
        ).span(12),
    )


def _replicas() -> Row:
    ready, running, provisioned = (
        SERVICES.sum(spec, "service")
        for spec in (operator.READY_REPLICAS, operator.REPLICAS, operator.PROVISIONED_REPLICAS)
    )
    return Row(
        "Replicas",
        areas(
            "Replicas by state",
            "Engine pods: ready, starting (created and not ready) and missing (requested by a "
            "Deployment and not created).",
            units.Short,
            (ready, "{{service}} ready"),
            (f"{running} - {ready}", "{{service}} starting"),
            (f"clamp_min({provisioned} - {running}, 0)", "{{service}} missing"),
        ).span(16),
        series(
            "Replicas by revision",
            "Ready engine pods of each revision.",
            units.Short,
            SERVICES.sum(operator.READY_REPLICAS, "service, revision"),
        ),
    )
