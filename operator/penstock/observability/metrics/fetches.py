"""The metrics of the operator about fetches of models and of adapters."""

from typing import NamedTuple

from penstock.observability.metrics import operator_labels as label
from penstock.observability.metrics.specs import MetricSpec, service_counter


class FetchMetrics(NamedTuple):
    """The metrics about the fetches of a service's models, or of its adapters."""

    fetches: MetricSpec
    downloaded_bytes: MetricSpec
    seconds: MetricSpec
    cached_files: MetricSpec

    @classmethod
    def of(cls, kind: str) -> "FetchMetrics":
        """The metrics about a kind of fetch, `model` or `adapter`."""
        name = f"penstock_operator_{kind}_fetch"
        return cls(
            service_counter(
                f"{name}es_total",
                f"Fetches of {kind}s by pods that ended: Fetched, or the reason of the failure.",
                label.FETCH_REASON,
            ),
            service_counter(
                f"{name}_downloaded_bytes_total", f"Bytes of {kind}s that pods downloaded."
            ),
            service_counter(
                f"{name}_seconds_total", f"Time that fetches of {kind}s took, in seconds."
            ),
            service_counter(
                f"{name}_cached_files_total", f"Files of {kind}s that pods found in a cache."
            ),
        )


MODEL_FETCHES, ADAPTER_FETCHES = FetchMetrics.of("model"), FetchMetrics.of("adapter")
