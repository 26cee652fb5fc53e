"""The reference page of all metrics: of operator, gateway, batch server and engine."""

from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.observability.metrics import batch, gateway, operator
from penstock.observability.metrics.specs import MetricSpec
from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs as engine
from penstock_engine.contract.metric_types import MetricSpec as EngineMetricSpec

# Bounds of those labels of the engine's metrics whose values their specification does not list, by metric and
# label. An empty metric name stands for all metrics.
ENGINE_BOUNDS: Mapping[tuple[str, str], str] = {
    ("", "engine"): "0",
    ("", "model_name"): "one for each engine",
    ("", "position"): "draft tokens of a step",
    ("", "adapter"): "adapters that are registered",
    ("", "kind"): "prompt, generation",
    ("", "max_lora"): "one for each engine",
    ("", "running_lora_adapters"): "one at a time",
    ("", "waiting_lora_adapters"): "one at a time",
    ("", "choice"): "save, drop, restore, compute",
    ("", "gpu"): "GPUs that the engine sees, by number",
    (features.KV_COPY_CHOICES.name, "reason"): "cheaper, unmeasured, probe",
    (features.ADAPTER_REQUESTS.name, "finished_reason"): ", ".join(engine.REQUEST_SUCCESS.values),
}
ENGINE_GROUPS: tuple[tuple[str, tuple[EngineMetricSpec, ...]], ...] = (
    ("", engine.METRICS),
    ("Only of an engine that serves adapters:", features.ADAPTER_METRICS),
    ("Only of an engine with host memory for KV blocks:", features.OFFLOADING_METRICS),
    ("Only of an engine with `--kv-events-config`:", features.KV_EVENT_METRICS),
    ("Only of an engine that computes on the CPU:", features.CPU_METRICS),
    ("Only of an engine that computes on GPUs:", features.GPU_METRICS),
    ("Only of an engine that speculates:", features.SPECULATION_METRICS),
    ("Only of `penstock-engine fetch` with `--port`, while it runs:", features.FETCH_METRICS),
)
INTRODUCTION = """# Metrics

Generated from `operator/penstock/observability/metrics/` and
`engine/penstock_engine/contract/` by `penstock docs`; do not edit.

All processes expose them at `/metrics`: operators at port 8081, gateways at port 8082, batch servers at
port 8085, engines at the port that answers requests. Each label has a bounded number of values, and the
series of a deleted service or revision are dropped. Histograms have the samples `_bucket`, `_sum` and
`_count`. Names and meanings stay: see [API stability](api-stability.md#metrics-commands-and-http)."""

# A label that at least this many metrics of a process have is explained once, above their tables.
MIN_SHARED = 3

# Name, type, labels with their bounds, and help of a metric.
Row = tuple[str, str, Mapping[str, str], str]


def page() -> str:
    """The page docs/reference/metrics.md."""
    parts = [INTRODUCTION, "## Operator", "Only the leading replica has series with `service`."]
    parts += _section([("", map(_row, operator.METRICS))])
    parts += ["## Gateway", *_section([("", map(_row, gateway.METRICS))])]
    parts += ["## Batch server", *_section([("", map(_row, batch.METRICS))])]
    groups = [(introduction, map(_engine_row, specs)) for introduction, specs in ENGINE_GROUPS]
    parts += ["## Engine", *_section(groups)]
    return "\n\n".join(parts) + "\n"


def _row(spec: MetricSpec) -> Row:
    return spec.name, spec.kind, {each.name: each.bound for each in spec.labels}, spec.help


def _engine_row(spec: EngineMetricSpec) -> Row:
    if spec is engine.CACHE_CONFIG:
        return spec.name, spec.kind, {"names of settings": "one for each engine"}, spec.help
    listed = ", ".join(spec.values)
    bounds = {
        name: ENGINE_BOUNDS.get((spec.name, name)) or ENGINE_BOUNDS.get(("", name)) or listed
        for name in spec.labels
    }
    return spec.name, spec.kind, bounds, spec.help


def _section(groups: Iterable[tuple[str, Iterable[Row]]]) -> list[str]:
    """A table of the shared labels, and one table for each group of metrics with its introduction."""
    tables = [(introduction, list(rows)) for introduction, rows in groups]
    used = Counter(
        label for _, rows in tables for _, _, labels, _ in rows for label in labels.items()
    )
    shared = {label: bound for (label, bound), count in used.items() if count >= MIN_SHARED}
    lines = [f"| `{label}` | {bound} |" for label, bound in shared.items()]
    parts = ["\n".join(["| label | values |", "| --- | --- |", *lines])]
    for introduction, rows in tables:
        parts += [*([introduction] if introduction else []), _table(rows, shared)]
    return parts


def _table(rows: Iterable[Row], shared: Mapping[str, str]) -> str:
    lines = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for name, kind, labels, meaning in rows:
        texts = (
            f"`{label}`" if shared.get(label) == bound else f"`{label}`: {bound}"
            for label, bound in labels.items()
        )
        lines.append(f"| `{name}` | {kind} | {'; '.join(texts)} | {meaning} |")
    return "\n".join(lines)
