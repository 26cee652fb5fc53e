"""Alerts on tenants: refused proofs, a store of limits that is down, and batches that do not get on."""

from penstock.observability.alerts.conditions import Comparison, all_of
from penstock.observability.alerts.rules import Alert, Group
from penstock.observability.metrics import batch, gateway, gateway_tenants

# Reasons of rejections that are a 401: a key or token that expired, is wrong, or is missing.
UNPROVEN_REASONS = "credentials_expired|credentials_invalid|credentials_missing"
# Requests without a valid proof, in each second. A client with a revoked key that tries again each second is
# one; scanners of a public address send bursts.
MAX_UNPROVEN_RATE = 1.0
# Calls of the quota store that fail, per second. A gateway that does not reach it calls each second,
# and one that was late itself fails now and then.
MAX_STORE_FAILURE_RATE = 0.2
# Time without a line that gets done. Lines wait for idle capacity, and batches may take a day.
MAX_IDLE_S = 3600
# A batch has 24 hours. With six of them left there is time to add capacity.
MAX_BATCH_AGE_S = 18 * 3600
AGE = f"max by (namespace) ({batch.OLDEST_AGE.name})"

CREDENTIALS_REFUSED = Alert(
    name="PenstockCredentialsRefused",
    severity="warning",
    condition=Comparison(
        f'sum by (reason) (rate({gateway.REJECTIONS.name}{{reason=~"{UNPROVEN_REASONS}"}}[10m]))',
        ">",
        MAX_UNPROVEN_RATE,
    ),
    hold_s=600,
    summary="Gateways refuse many requests without a valid key or token ({{ $labels.reason }}).",
    description=(
        "{{ $value | humanize }} requests in each second get a 401. A client may have lost its key, or "
        "somebody tries keys."
    ),
)

QUOTA_STORE_DOWN = Alert(
    name="PenstockQuotaStoreDown",
    severity="warning",
    condition=Comparison(
        f"max by (pod) (rate({gateway_tenants.QUOTA_STORE_FAILURES.name}[5m]))",
        ">",
        MAX_STORE_FAILURE_RATE,
    ),
    hold_s=120,
    summary="Gateway {{ $labels.pod }} does not reach the store of the tenants' limits.",
    description=(
        "{{ $value | humanize }} calls in each second fail. The gateway has its share of each limit, and "
        "keeps its entries of the ledger of usage until the store is back: they are lost if it ends before."
    ),
)

BATCH_STUCK = Alert(
    name="PenstockBatchStuck",
    severity="warning",
    condition=all_of(
        Comparison(AGE, ">", MAX_IDLE_S),
        # A counter of lines has no series before the first one
        Comparison(
            f'(sum by (namespace) (increase({batch.LINES.name}{{outcome!="repeated"}}[1h])) or 0 * {AGE})',
            "<",
            1,
        ),
    ),
    hold_s=600,
    summary="No batch has got a line done for an hour.",
    description=(
        "The oldest batch was created {{ $value | humanizeDuration }} ago. Batches expire after 24 hours, "
        "with what is done."
    ),
)

BATCH_LATE = Alert(
    name="PenstockBatchLate",
    severity="warning",
    condition=Comparison(AGE, ">", MAX_BATCH_AGE_S),
    hold_s=300,
    summary="A batch will soon expire.",
    description=(
        "The oldest batch was created {{ $value | humanizeDuration }} ago. Batches expire after 24 hours: "
        "lines that are not done by then are not executed."
    ),
)

GROUP = Group("penstock-tenants", (CREDENTIALS_REFUSED, QUOTA_STORE_DOWN, BATCH_STUCK, BATCH_LATE))
