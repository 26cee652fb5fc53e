"""Rollout: the canary against the stable revision, with the evidence of the judge."""

from grafana_foundation_sdk.models import units

from penstock.core.observed.rollout_phases import PHASES, Phase
from penstock.observability.dashboards import variables
from penstock.observability.dashboards.board import Board, Row
from penstock.observability.dashboards.overview import objective
from penstock.observability.dashboards.panels import (
    BLUE,
    GREEN,
    GREY,
    RED,
    YELLOW,
    fractions,
    logarithmic,
    series,
    states,
)
from penstock.observability.dashboards.promql import SERVICES, or_zero, ratio
from penstock.observability.metrics import gateway, operator

_GATES = {
    "Waiting": GREY, "Passing": GREEN, "Failing": RED, "NoData": YELLOW, "Unreadable": "orange",
    "Failed": "dark-red",
}  # fmt: skip
BY_REVISION = "service, revision"
REVISION = "{{service}} {{revision}}"
# A service has one canary at a time, so its tests need no revision.
BY_TEST = "service, metric"
TEST = "{{service}} {{metric}}"


def phase_color(phase: Phase) -> str:
    """The color of a phase. Those in which a rollout goes on as planned are light blue."""
    match phase:
        case "Stable":
            return GREEN
        case "Rejected" | "RollingBack":
            return RED
        case "Discarding":
            return "dark-red"
        case "Paused" | "Waiting":
            return YELLOW
        case "Judging":
            return BLUE
        case "Mirroring":
            return "purple"
        case "Promoting":
            return "dark-green"
        case "Stopping" | "Starting" | "Growing" | "Replacing" | "Draining":
            return "light-blue"


def board() -> Board:
    return Board(
        "rollout",
        "Rollout",
        "The new revision against the stable one: traffic, latency and the evidence of the judge.",
        (variables.datasource(), variables.namespace(), variables.service()),
        (_progress(), _comparison(), _evidence(), _mirror()),
    )


def _progress() -> Row:
    phase = SERVICES.state(operator.ROLLOUT_PHASE, "service", "phase", tuple(PHASES))
    return Row(
        "Progress",
        states(
            "Phase",
            "Phase of the rollout. docs/reference/rollout-phases.md says what each one means.",
            {phase: phase_color(phase) for phase in PHASES},
            (phase, "{{service}}"),
        ),
        fractions(
            "Traffic",
            "Fraction of the traffic that each revision receives. Control: pods of the stable "
            "revision that the canary is compared with.",
            SERVICES.max(operator.TRAFFIC_WEIGHT, "service, revision, cohort"),
        ),
        series(
            "Ready replicas",
            "Ready engine pods of each revision.",
            units.Short,
            SERVICES.sum(operator.READY_REPLICAS, BY_REVISION),
        ),
        series(
            "Requests at engines",
            "Requests in flight at the engines of each revision.",
            units.Short,
            SERVICES.sum(gateway.IN_FLIGHT, BY_REVISION),
        ),
    )


def _comparison() -> Row:
    responses = SERVICES.rate(gateway.RESPONSES, BY_REVISION)
    failed = SERVICES.rate(gateway.RESPONSES, BY_REVISION, 'code=~"5.."')
    return Row(
        "Canary and stable",
        series(
            "Time to the first token, p95",
            "From a request's arrival at the gateway to the first byte of its response, with the "
            "objective.",
            units.Seconds,
            SERVICES.quantile(0.95, gateway.FIRST_BYTE_S, BY_REVISION),
            objective("ttft"),
        ),
        series(
            "Time per output token, p95",
            "Mean time between the tokens of a stream.",
            units.Seconds,
            SERVICES.quantile(0.95, gateway.TPOT_S, BY_REVISION),
            objective("tpot"),
        ),
        fractions(
            "Failed responses",
            "Fraction of the responses with a 5xx status.",
            (ratio(or_zero(failed, responses), responses), REVISION),
        ),
    )


def _evidence() -> Row:
    return Row(
        "Evidence",
        logarithmic(
            series(
                "e-value",
                "Evidence that the canary is worse, by test. At 1 there is none. A test rejects the "
                "canary when its value reaches one over its share of spec.rollout.canary.alpha.",
                units.Short,
                SERVICES.max(operator.CANARY_E_VALUE, BY_TEST),
            )
        ),
        series(
            "Effect with bounds",
            "Estimated increase on the canary, between its confidence bounds: relative for times "
            "and lengths, absolute for fractions of requests.",
            units.PercentUnit,
            SERVICES.max(operator.CANARY_EFFECT, BY_TEST),
            (
                SERVICES.max(operator.CANARY_EFFECT_BOUND, f"{BY_TEST}, bound"),
                f"{TEST} {{{{bound}}}}",
            ),
        ).axis_soft_min(-0.1),
        series(
            "Samples",
            "Requests that each test has counted, on the canary and on its control.",
            units.Short,
            (SERVICES.max(operator.CANARY_SAMPLES, f"{BY_TEST}, arm"), f"{TEST} {{{{arm}}}}"),
        ),
        states(
            "Gates",
            "State of the metric gates and of the evaluation Job of the spec.",
            _GATES,
            SERVICES.state(operator.CANARY_GATE, "service, gate", "state", tuple(_GATES)),
        ),
    )


def _mirror() -> Row:
    return Row(
        "Mirrored requests",
        series(
            "Copies",
            "Copies of requests whose responses no client sees. dropped: a limit was reached, or "
            "there was no engine.",
            units.RequestsPerSecond,
            (
                SERVICES.rate(gateway.MIRRORED_REQUESTS, "service, revision, outcome"),
                f"{REVISION} {{{{outcome}}}}",
            ),
        ).span(12),
        series(
            "Time to the first byte of copies, p95",
            "From sending a copy to an engine to the first byte of its response.",
            units.Seconds,
            SERVICES.quantile(0.95, gateway.MIRRORED_FIRST_BYTE_S, BY_REVISION),
        ).span(12),
    )
