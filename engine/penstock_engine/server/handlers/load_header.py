"""The header endpoint-load-metrics, by which load balancers that speak ORCA learn an engine's load."""

import json

from penstock_engine.core.stats import SchedulerStats

FORMAT_HEADER = b"endpoint-load-metrics-format"
LOAD_HEADER = b"endpoint-load-metrics"


def load_headers(requested: bytes | None, stats: SchedulerStats) -> list[tuple[bytes, bytes]]:
    """Returns the header of a response; none unless the request asks for a known format, as in vLLM.

    requested: the format, TEXT or JSON in any case.
    """
    metrics = {"kv_cache_usage_perc": stats.kv_usage, "num_requests_waiting": stats.waiting}
    match (requested or b"").upper():
        case b"TEXT":
            values = ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())
            text = f"TEXT {values}"
        case b"JSON":
            text = f"JSON {json.dumps({'named_metrics': metrics})}"
        case _:
            return []
    return [(LOAD_HEADER, text.encode())]
