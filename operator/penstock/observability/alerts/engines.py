"""Alerts on engines and their adapters.

Metrics of engines carry the labels `service` (namespace/name), `revision` and `pod` from the scrape
configuration.
"""

from penstock.observability.alerts.conditions import Comparison, all_of
from penstock.observability.alerts.rules import Alert, Group
from penstock.observability.metrics.gateway import ADAPTER_LOAD_FAILURES
from penstock_engine.contract.feature_metric_specs import LORA_RESIDENT
from penstock_engine.contract.metric_specs import KV_USAGE, PREEMPTED

# Fraction of the KV blocks in use above which the caches count as full.
FULL_KV_USAGE = 0.95
# Changes between "in memory" and "not in memory" of one adapter on one engine. Above this the adapter is
# loaded more often than every four minutes.
MAX_ADAPTER_CHANGES = 10
# Loads of one adapter that fail within 15 minutes before an alert fires. While requests come, an adapter that
# engines refuse is tried every five minutes at least.
MAX_FAILED_LOADS = 2

KV_PRESSURE = Alert(
    name="PenstockKVCachePressure",
    severity="warning",
    condition=all_of(
        Comparison(f"avg by (service) ({KV_USAGE.name})", ">", FULL_KV_USAGE),
        Comparison(f"sum by (service) (rate({PREEMPTED.name}[5m]))", ">", 0),
    ),
    hold_s=600,
    summary="The KV caches of {{ $labels.service }} are full, and running requests are preempted.",
    description=(
        "On average {{ $value | humanizePercentage }} of the KV caches are in use. Preempted requests are "
        "computed again, so their answers take longer."
    ),
)

ADAPTER_THRASH = Alert(
    name="PenstockAdapterThrash",
    severity="warning",
    condition=Comparison(
        f"max by (service, adapter) (changes({LORA_RESIDENT.name}[20m]))", ">", MAX_ADAPTER_CHANGES
    ),
    hold_s=300,
    summary="Adapter {{ $labels.adapter }} of {{ $labels.service }} is loaded again and again.",
    description=(
        "The adapter was loaded or evicted {{ $value }} times in 20 minutes on one engine: more adapters are "
        "in use than fit into its memory."
    ),
)

ADAPTER_LOAD_FAILS = Alert(
    name="PenstockAdapterLoadFails",
    severity="warning",
    condition=Comparison(
        f"sum by (service, adapter) (increase({ADAPTER_LOAD_FAILURES.name}[15m]))",
        ">",
        MAX_FAILED_LOADS,
    ),
    hold_s=300,
    summary="Adapter {{ $labels.adapter }} of {{ $labels.service }} cannot be loaded.",
    description=(
        "{{ $value | humanize }} loads failed within 15 minutes. Requests for the adapter get an error; the "
        "status of the LoraAdapter and the gateways' logs have the engine's reason."
    ),
)

GROUP = Group("penstock-engines", (KV_PRESSURE, ADAPTER_THRASH, ADAPTER_LOAD_FAILS))
