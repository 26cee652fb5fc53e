"""Alerts on services: queues, errors, scaling, start-up, rollouts and endpoints."""

from penstock.core.rollout.deadlines import PHASES_WITHOUT_DEADLINE
from penstock.observability.alerts.conditions import (
    Combination,
    Comparison,
    Present,
    all_of,
    any_of,
)
from penstock.observability.alerts.rules import Alert, Group, latest
from penstock.observability.metrics.gateway import (
    EJECTIONS,
    ENDPOINTS,
    REJECTIONS,
    REQUESTS,
    RESPONSES,
    WAITING,
)
from penstock.observability.metrics.operator import (
    AT_MAXIMUM,
    BLIND,
    CONDITION_STATUS,
    READY_REPLICAS,
    ROLLOUT_DEADLINE,
    ROLLOUT_PHASE,
    UNREADABLE_ENGINES,
    UNREADY_S,
)
from penstock.observability.metrics.operator_adapters import (
    ADAPTER_ROLLOUT_DEADLINE,
    ADAPTER_ROLLOUT_PHASE,
)
from penstock.observability.metrics.specs import MetricSpec

PHASES_WITHOUT_LIMIT = "|".join(PHASES_WITHOUT_DEADLINE)
# Time after a rollout's deadline. A canary's time without requests does not count towards its maxDuration.
MAX_ROLLOUT_DELAY_S = 3600
# Engines that take longer than this load no usual model: 70 GB at 200 MB/s take 6 minutes.
SLOW_START_S = 15 * 60
# Reasons of rejections that are the client's fault: no engine could have served these requests.
CLIENT_REASONS = "invalid_request|model_not_found|too_large"
# Reasons of rejections before the service is known that are not the client's fault.
UNROUTED_REASONS = (
    "connections|internal|issuer_unavailable|memory|not_synced|route_broken|service_missing|"
    "token_review_failed"
)
MAX_REJECTED, MAX_ERRORS = 0.02, 0.05
# Failures within five minutes before an alert fires: of a service with few requests, one is no incident.
MIN_FAILURES = 5
BY_SERVICE = " by (service)"
# Ejections by one gateway within 15 minutes: `increase` extrapolates two to 2.1. All gateways eject an engine
# that fails.
MAX_EJECTIONS = 2.5
QUEUE = f"(sum by (service) ({WAITING.name}))"
# Ratio of the queue's means of ten minutes above which it grows. Those of a steady queue differ by some
# percent.
MIN_QUEUE_GROWTH = 1.2


def _exceeds_share(failures: str, requests: str, limit: float, by: str = "") -> Combination:
    """More than this fraction of the requests of five minutes failed, and at least MIN_FAILURES.

    failures, requests: selectors of counters.
    """
    failed = f"sum{by} (increase({failures}[5m]))"
    return all_of(
        Comparison(f"{failed} / (sum{by} (increase({requests}[5m])) > 0)", ">", limit),
        Comparison(failed, ">=", MIN_FAILURES),
    )


QUEUE_GROWTH = Alert(
    name="PenstockQueueGrowing",
    severity="warning",
    condition=all_of(
        Present(QUEUE),
        Comparison(f"min_over_time({QUEUE}[10m:30s])", ">", 0),
        Comparison(
            f"avg_over_time({QUEUE}[10m:30s])",
            ">",
            f"{MIN_QUEUE_GROWTH:g} * avg_over_time({QUEUE}[10m:30s] offset 10m)",
        ),
    ),
    hold_s=300,
    summary="The queue of {{ $labels.service }} grows.",
    description=(
        "{{ $value }} requests wait in the gateways for an engine. The queue has not been empty for ten "
        "minutes, and was on average longer than in the ten minutes before."
    ),
)

REJECTED = Alert(
    name="PenstockRequestsRejected",
    severity="critical",
    condition=any_of(
        _exceeds_share(
            f'{REJECTIONS.name}{{reason!~"{CLIENT_REASONS}"}}',
            REQUESTS.name,
            MAX_REJECTED,
            BY_SERVICE,
        ),
        _exceeds_share(
            f'{REJECTIONS.name}{{service="",reason=~"{UNROUTED_REASONS}"}}',
            RESPONSES.name,
            MAX_REJECTED,
        ),
    ),
    hold_s=300,
    summary="The gateways reject requests{{ with $labels.service }} of {{ . }}{{ end }}.",
    description=(
        "{{ $value | humanizePercentage }} of the requests of the last five minutes were answered with "
        "an error by the gateway itself: its queue was full, they waited too long, or no engine was there."
    ),
)

ERRORS = Alert(
    name="PenstockErrorRate",
    severity="critical",
    condition=_exceeds_share(
        f'{RESPONSES.name}{{code=~"5.."}}', REQUESTS.name, MAX_ERRORS, BY_SERVICE
    ),
    hold_s=300,
    summary="Requests of {{ $labels.service }} fail.",
    description=(
        "{{ $value | humanizePercentage }} of the requests of the last five minutes had a 5xx response."
    ),
)

EJECTED = Alert(
    name="PenstockEndpointEjected",
    severity="warning",
    condition=any_of(
        Comparison(f'sum by (service) ({ENDPOINTS.name}{{state="ejected"}})', ">", 0),
        Comparison(f"max by (service) (increase({EJECTIONS.name}[15m]))", ">", MAX_EJECTIONS),
    ),
    hold_s=120,
    summary="Gateways send no requests to an engine of {{ $labels.service }} that is ready.",
    description=(
        "An engine pod reports itself as ready, but its answers failed several times in a row, so the "
        "gateways leave it out."
    ),
)

BLIND_SCALER = Alert(
    name="PenstockScalerBlind",
    severity="warning",
    # A service without a ready engine has other alerts.
    condition=all_of(
        any_of(
            Comparison(latest(BLIND.name), ">", 0),
            Comparison(latest(UNREADABLE_ENGINES.name), ">", 0),
        ),
        Comparison(latest(READY_REPLICAS.name), ">", 0),
    ),
    hold_s=300,
    summary="The scaler holds the replicas of {{ $labels.service }}, because it cannot read metrics.",
    description=(
        "Metrics of engines or gateways have been missing for five minutes. Replicas are added for load that "
        "is known, but none are removed, nor is the last one of an idle service with minReplicas 0."
    ),
)

MAXIMUM = Alert(
    name="PenstockScalerAtMaximum",
    severity="warning",
    condition=Comparison(latest(AT_MAXIMUM.name), ">", 0),
    hold_s=900,
    summary="{{ $labels.service }} needs more replicas than it may have.",
    description=(
        "For fifteen minutes the load has needed more replicas than spec.scaling.maxReplicas or the "
        "ResourceQuota of the namespace allows."
    ),
)

SLOW_START = Alert(
    name="PenstockSlowStart",
    severity="warning",
    condition=Comparison(latest(UNREADY_S.name), ">", SLOW_START_S),
    hold_s=60,
    summary="An engine of {{ $labels.service }} does not become ready.",
    description=("An engine pod has not been ready for {{ $value | humanizeDuration }}."),
)


def _is_overdue(deadline: MetricSpec, phase: MetricSpec, by: str) -> Combination:
    """Condition: a phase of a rollout has lasted an hour longer than it should."""
    return Combination(
        "unless",
        (
            Comparison(f"(time() - {latest(deadline.name, by)})", ">", MAX_ROLLOUT_DELAY_S),
            Present(f'max by ({by}) ({phase.name}{{phase=~"{PHASES_WITHOUT_LIMIT}"}})'),
        ),
    )


STUCK = Alert(
    name="PenstockRolloutStuck",
    severity="warning",
    condition=any_of(
        _is_overdue(ROLLOUT_DEADLINE, ROLLOUT_PHASE, "service"),
        _is_overdue(ADAPTER_ROLLOUT_DEADLINE, ADAPTER_ROLLOUT_PHASE, "service, adapter"),
    ),
    hold_s=300,
    summary=(
        "The rollout of {{ $labels.service }}{{ with $labels.adapter }}, adapter {{ . }},{{ end }} does not "
        "end."
    ),
    description=(
        "The phase of the rollout should have ended {{ $value | humanizeDuration }} ago by the limits in "
        "spec.rollout, such as maxDuration and progressDeadline."
    ),
)

STALLED = Alert(
    name="PenstockServiceStalled",
    severity="warning",
    condition=Combination(
        "unless",
        (
            Comparison(latest(f'{CONDITION_STATUS.name}{{type="Stalled",status="True"}}'), ">", 0),
            Present(f'max by (service) ({CONDITION_STATUS.name}{{type="Stalled",status!="True"}})'),
        ),
    ),
    hold_s=300,
    summary="{{ $labels.service }} cannot reach what its spec asks for.",
    description=(
        "The condition Stalled is True: the spec is refused, its revision was rejected, or its pods do not "
        "start. The service goes on with the last revision that worked, if there is one."
    ),
)

GROUP = Group(
    "penstock-services",
    (
        QUEUE_GROWTH, REJECTED, ERRORS, EJECTED, BLIND_SCALER, MAXIMUM, SLOW_START, STUCK, STALLED,
    ),
)  # fmt: skip
