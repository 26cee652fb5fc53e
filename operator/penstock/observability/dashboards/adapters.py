"""Adapters: which LoRA adapters are in memory, used, waited for and loaded again."""

from grafana_foundation_sdk.models import units

from penstock.core.observed.rollout_phases import PHASES
from penstock.observability.dashboards import variables
from penstock.observability.dashboards.board import Board, Row
from penstock.observability.dashboards.panels import areas, fractions, logarithmic, series, states
from penstock.observability.dashboards.promql import ENGINES, SERVICES, WINDOW, ratio
from penstock.observability.dashboards.rollout import phase_color
from penstock.observability.metrics import gateway, operator_adapters
from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs as engine

ADAPTER = "{{service}} {{adapter}}"


def board() -> Board:
    return Board(
        "adapters",
        "Adapters",
        "LoRA adapters of the engines: in memory, in use, waited for, and loaded again and again.",
        (
            variables.datasource(),
            variables.namespace(),
            variables.service(),
            variables.revision(),
            variables.pod(),
        ),
        (_memory(), _use(), _on_demand(), _versions()),
    )


def _memory() -> Row:
    changes = f"changes({ENGINES.select(features.LORA_RESIDENT)}[{WINDOW}])"
    return Row(
        "Memory",
        areas(
            "Engines with the adapter",
            "Engines that have each adapter in memory.",
            units.Short,
            ENGINES.sum(features.LORA_RESIDENT, "service, adapter"),
        ),
        series(
            "Adapters in memory",
            "Adapters that each engine has in memory.",
            units.Short,
            ENGINES.sum(features.LORA_RESIDENT, "pod"),
        ),
        series(
            "Loads and evictions",
            "How often each adapter was loaded into an engine's memory or dropped from it, within "
            "the window of a point. Many: more adapters are in use than fit.",
            units.Short,
            (f"sum by (service, adapter) ({changes})", ADAPTER),
        ),
    )


def _use() -> Row:
    return Row(
        "Use",
        series(
            "Requests",
            "Requests that ended, by adapter and reason. error: the adapter could not be loaded, "
            "or the engine failed.",
            units.RequestsPerSecond,
            (
                ENGINES.rate(features.ADAPTER_REQUESTS, "service, adapter, finished_reason"),
                f"{ADAPTER} {{{{finished_reason}}}}",
            ),
        ),
        series(
            "Tokens",
            "Prompt and generated tokens of requests that ended, by adapter.",
            units.CountsPerSecond,
            (
                ENGINES.rate(features.ADAPTER_TOKENS, "service, adapter, kind"),
                f"{ADAPTER} {{{{kind}}}}",
            ),
        ),
        series(
            "Requests that wait for an adapter",
            "Requests that engines put off, as no more adapters fit into a step or into memory.",
            units.Short,
            ENGINES.sum(engine.WAITING_BY_REASON, "service", 'reason="deferred"'),
        ),
    )


def _on_demand() -> Row:
    by = "service, adapter"
    misses = SERVICES.rate(gateway.ADAPTER_MISSES, by)
    requests = SERVICES.rate(gateway.ADAPTER_REQUESTS, by)
    return Row(
        "Loads on demand",
        series(
            "Requests at gateways",
            "Requests that arrived for each adapter.",
            units.RequestsPerSecond,
            (requests, ADAPTER),
        ),
        fractions(
            "Requests without a copy",
            "Share of the requests for each adapter that found it in no engine's memory and waited for a "
            "load. Higher: more adapters are in use than fit.",
            (ratio(misses, requests), ADAPTER),
        ),
        series(
            "Requests that wait for a load",
            "Requests that wait at gateways for an adapter to be loaded.",
            units.Short,
            SERVICES.sum(gateway.ADAPTER_WAITING, by),
        ),
        series(
            "Failed loads",
            "Loads on demand that failed. The gateways' logs and the status of the LoraAdapter have the "
            "reasons.",
            units.CountsPerSecond,
            SERVICES.rate(gateway.ADAPTER_LOAD_FAILURES, by),
        ),
        series(
            "Time of a load",
            "Time of the loads that requests waited for: median and 95th percentile.",
            units.Seconds,
            (SERVICES.quantile(0.5, gateway.ADAPTER_LOAD_S, "service"), "{{service}} median"),
            (SERVICES.quantile(0.95, gateway.ADAPTER_LOAD_S, "service"), "{{service}} p95"),
        ),
    )


def _versions() -> Row:
    by, by_test = "service, adapter", "service, adapter, metric"
    return Row(
        "Rollouts of versions",
        states(
            "Phase of the rollout",
            "Phase of the adapters whose version is being rolled out. Nothing: no rollout runs.",
            {phase: phase_color(phase) for phase in PHASES},
            SERVICES.state(operator_adapters.ADAPTER_ROLLOUT_PHASE, by, "phase", tuple(PHASES)),
        ),
        fractions(
            "Requests for the new version",
            "Fraction of the requests for the adapter that its new version receives.",
            SERVICES.max(operator_adapters.ADAPTER_CANARY_WEIGHT, by),
        ),
        logarithmic(
            series(
                "Evidence against the new version",
                "e-value of each test. At 1 there is none.",
                units.Short,
                SERVICES.max(operator_adapters.ADAPTER_CANARY_E_VALUE, by_test),
            )
        ),
        series(
            "Effect of the new version",
            "Estimated increase against the version that serves: relative for times and lengths, "
            "absolute for fractions of requests.",
            units.PercentUnit,
            SERVICES.max(operator_adapters.ADAPTER_CANARY_EFFECT, by_test),
        ),
        series(
            "Requests compared",
            "Requests that each test has counted, for the new version and for the one that serves.",
            units.Short,
            SERVICES.max(operator_adapters.ADAPTER_CANARY_SAMPLES, f"{by_test}, arm"),
        ),
    )
