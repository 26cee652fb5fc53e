"""The metrics of the operator about LoRA adapters and the rollouts of their versions.

A service may have thousands of adapters, so only rollouts have series with an adapter's name. Gateways have
such series for the adapters in use.
"""

from penstock.observability.metrics import operator_labels as label
from penstock.observability.metrics.fetches import ADAPTER_FETCHES
from penstock.observability.metrics.specs import MetricSpec, service_counter, service_gauge

ADAPTERS = service_gauge("penstock_operator_adapters", "LoraAdapters that the service takes.")
COPIES_WANTED = service_gauge(
    "penstock_operator_adapter_copies_wanted",
    "Copies of adapters that the last placement wants, of all adapters together.",
)
COPIES_LOADED = service_gauge(
    "penstock_operator_adapter_copies_loaded",
    "Copies of wanted adapters in the memory of ready engines.",
)
SLOTS = service_gauge(
    "penstock_operator_adapter_slots", "Adapters that the ready engines can have in memory."
)
FAILING = service_gauge(
    "penstock_operator_adapters_failing", "LoraAdapters whose last load by the operator failed."
)
LOADS = service_counter(
    "penstock_operator_adapter_loads_total",
    "Loads that the operator sent to engines. Gateways count their own.",
    label.LOAD_OUTCOME,
)
UNLOADS = service_counter(
    "penstock_operator_adapter_unloads_total", "Unloads that the operator sent to engines."
)

ADAPTER_ROLLOUT_PHASE = service_gauge(
    "penstock_operator_adapter_rollout_phase",
    "1, with the phase in which an adapter's version is rolled out. None after the rollout.",
    label.ADAPTER,
    label.PHASE,
)
ADAPTER_ROLLOUT_DEADLINE = service_gauge(
    "penstock_operator_adapter_rollout_deadline_timestamp_seconds",
    "Time by which the phase of the adapter's rollout should end, in seconds since the epoch. None for a "
    "phase without a limit.",
    label.ADAPTER,
)
ADAPTER_CANARY_WEIGHT = service_gauge(
    "penstock_operator_adapter_canary_weight_ratio",
    "Fraction of the requests for the adapter that its new version receives while it is judged.",
    label.ADAPTER,
)
ADAPTER_CANARY_E_VALUE = service_gauge(
    "penstock_operator_adapter_canary_e_value",
    "e-value of a test: the evidence that the adapter's new version is worse. 1 means no evidence.",
    label.ADAPTER,
    label.TEST,
)
ADAPTER_CANARY_EFFECT = service_gauge(
    "penstock_operator_adapter_canary_effect_ratio",
    "Estimated increase on the adapter's new version: relative for times and lengths, absolute for fractions "
    "of requests.",
    label.ADAPTER,
    label.TEST,
)
ADAPTER_CANARY_SAMPLES = service_gauge(
    "penstock_operator_adapter_canary_samples",
    "Requests for the adapter that a test has counted.",
    label.ADAPTER,
    label.TEST,
    label.ARM,
)

OF_ADAPTERS: tuple[MetricSpec, ...] = (
    *ADAPTER_FETCHES, ADAPTERS, COPIES_WANTED, COPIES_LOADED, SLOTS, FAILING, LOADS, UNLOADS,
    ADAPTER_ROLLOUT_PHASE, ADAPTER_ROLLOUT_DEADLINE, ADAPTER_CANARY_WEIGHT, ADAPTER_CANARY_E_VALUE,
    ADAPTER_CANARY_EFFECT, ADAPTER_CANARY_SAMPLES,
)  # fmt: skip
