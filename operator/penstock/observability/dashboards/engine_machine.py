"""Row of the engine dashboard about the machine: memory, GPU and CPU."""

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards.board import Row
from penstock.observability.dashboards.engine_queries import POD
from penstock.observability.dashboards.panels import fractions, series
from penstock.observability.dashboards.promql import ENGINES
from penstock_engine.contract import feature_metric_specs as features
from penstock_engine.contract import metric_specs as engine


def machine() -> Row:
    return Row(
        "Memory, GPU and CPU",
        series(
            "Memory of the process",
            "Resident memory of the engine's main process.",
            units.BytesIEC,
            (ENGINES.sum(engine.RESIDENT_MEMORY, "pod"), POD),
        ),
        series(
            "GPU memory",
            "Memory of each GPU that is in use, by any process, and all that it has.",
            units.BytesIEC,
            (ENGINES.sum(features.GPU_MEMORY_USED, "pod, gpu"), f"{POD} {{{{gpu}}}} used"),
            (ENGINES.sum(features.GPU_MEMORY_TOTAL, "pod, gpu"), f"{POD} {{{{gpu}}}} total"),
        ),
        fractions(
            "GPU utilization",
            "Fraction of the time in which a kernel ran on the GPU, by NVML.",
            (ENGINES.sum(features.GPU_UTILIZATION, "pod, gpu"), f"{POD} {{{{gpu}}}}"),
        ),
        series(
            "CPU threads",
            "Threads that compute steps, of engines that compute on the CPU. Fewer while other "
            "programs use its cores.",
            units.Short,
            (ENGINES.sum(features.CPU_THREADS, "pod"), POD),
        ).span(12),
        series(
            "Draining",
            "1 while an engine finishes its requests and takes no more.",
            units.Short,
            (ENGINES.sum(engine.DRAINING, "pod"), POD),
        ).span(12),
    )
