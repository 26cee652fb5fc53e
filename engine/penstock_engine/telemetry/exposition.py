"""Text formats of metrics: OpenMetrics for scrapers that accept it, else Prometheus'.

Only OpenMetrics has exemplars: the ids of traces next to the buckets of histograms.
"""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics

OPENMETRICS = "application/openmetrics-text"

Exemplar = dict[str, str]


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Returns all metrics of a registry, and their content type. accept: header of the request."""
    if OPENMETRICS in accept:
        # The default escaping writes `vllm:` as `vllm_`, although colons are valid.
        text: bytes = openmetrics.generate_latest(  # type: ignore[no-untyped-call]
            registry, escaping=openmetrics.ALLOWUTF8
        )
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def exemplar(trace_id: str) -> Exemplar | None:
    """Returns the exemplar of an observation in a trace. trace_id: empty if it is not recorded."""
    return {"trace_id": trace_id} if trace_id else None
