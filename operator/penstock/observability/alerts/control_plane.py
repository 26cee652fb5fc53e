"""Alerts on Penstock itself: operators and gateways."""

from penstock.observability.alerts.conditions import (
    Absent,
    Combination,
    Comparison,
    any_of,
)
from penstock.observability.alerts.rules import Alert, Group
from penstock.observability.metrics import gateway, operator

# A certificate is renewed by a person or a tool of the cluster, a token by the kubelet every hour.
CERTIFICATE_LEFT_S = 7 * 24 * 3600
TOKEN_LEFT_S = 300
# cert-manager and authorities with lives of a few days renew a certificate more than a day before its end.
CLIENT_CERTIFICATE_LEFT_S = 24 * 3600
# The gateway confirms its routes with the API server at least once a minute.
MAX_SNAPSHOT_AGE_S = 180


def _expires(credential: str, within_s: int) -> list[Comparison]:
    """A credential of an operator, or one of a gateway, expires within this time."""
    return [
        Comparison(
            f'(min by (pod, credential) ({spec.name}{{credential="{credential}"}}) - time())',
            "<",
            within_s,
        )
        for spec in (operator.CREDENTIAL_EXPIRY, gateway.CREDENTIAL_EXPIRY)
    ]


def _no_leader() -> Combination:
    """An installation has no leading operator. Each is in a namespace of its own.

    One whose operators all vanished counts for another hour, and if Prometheus knows none, that counts too.
    """
    name = operator.LEADING.name
    of_last_hour = f"last_over_time({name}[1h])"
    leaders = f"(sum by (namespace) ({name}) or 0 * sum by (namespace) ({of_last_hour}))"
    return any_of(Comparison(leaders, "<", 1), Absent(of_last_hour))


NO_LEADER = Alert(
    name="PenstockNoLeader",
    severity="critical",
    condition=_no_leader(),
    hold_s=120,
    summary="No operator leads: services are neither scaled nor rolled out.",
    description=(
        "Services answer requests as before, and their Deployments replace failed pods. Changes of "
        "InferenceServices, scaling and rollouts wait for a leader."
    ),
)

RECONCILE_ERRORS = Alert(
    name="PenstockReconcileErrors",
    severity="warning",
    condition=any_of(
        Comparison(f'sum(rate({operator.RECONCILES.name}{{outcome="error"}}[10m]))', ">", 0),
        Comparison(f"sum(increase({operator.UNEXPECTED_ERRORS.name}[10m]))", ">", 0),
    ),
    hold_s=900,
    summary="The operator fails to reconcile services.",
    description="Reconciles have ended with errors for fifteen minutes. They are repeated with pauses.",
)

GATEWAY_BEHIND = Alert(
    name="PenstockGatewayBehind",
    severity="warning",
    condition=Comparison(f"max by (pod) ({gateway.SNAPSHOT_AGE_S.name})", ">", MAX_SNAPSHOT_AGE_S),
    hold_s=60,
    summary="Gateway {{ $labels.pod }} routes by old data.",
    description=(
        "The gateway has not heard from the API server for {{ $value | humanizeDuration }}. It goes on with "
        "the routes and pods that it knows."
    ),
)

CREDENTIAL_EXPIRES = Alert(
    name="PenstockCredentialExpires",
    severity="critical",
    condition=any_of(*_expires("ca", CERTIFICATE_LEFT_S), *_expires("token", TOKEN_LEFT_S)),
    hold_s=300,
    summary="The {{ $labels.credential }} of {{ $labels.pod }} expires in {{ $value | humanizeDuration }}.",
    description="After that the process can no longer reach the API server.",
)

GATEWAY_CERTIFICATE_EXPIRES = Alert(
    name="PenstockGatewayCertificateExpires",
    severity="critical",
    condition=Comparison(
        f"(min by (pod) ({gateway.TLS_CERTIFICATE_EXPIRY.name} > 0) - time())",  # 0: without TLS
        "<",
        CLIENT_CERTIFICATE_LEFT_S,
    ),
    hold_s=300,
    summary="The TLS certificate of {{ $labels.pod }} expires in {{ $value | humanizeDuration }}.",
    description="After that clients refuse to connect to the gateway.",
)

GROUP = Group(
    "penstock-control-plane",
    (
        NO_LEADER,
        RECONCILE_ERRORS,
        GATEWAY_BEHIND,
        CREDENTIAL_EXPIRES,
        GATEWAY_CERTIFICATE_EXPIRES,
    ),
)
