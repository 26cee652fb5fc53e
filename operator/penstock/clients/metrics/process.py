"""Metrics that operator and gateway have in common: version, watches and credentials."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from penstock.clients.kubernetes.credentials import expiry_times_s
from penstock.clients.metrics.metric_set import MetricSet
from penstock.observability.metrics.specs import MetricSpec


class ProcessMetrics:
    """All metrics of one process, in a registry of their own. A subclass sets those of its component."""

    def __init__(
        self,
        specs: Iterable[MetricSpec],
        *,
        build_info: MetricSpec,
        watch_restarts: MetricSpec,
        credential_expiry: MetricSpec,
    ) -> None:
        self.metric_set = MetricSet(specs)
        self._watch_restarts = self.metric_set.counter(watch_restarts)
        self._credential_expiry = self.metric_set.gauge(credential_expiry)
        self._configuration: Any = None
        self.metric_set.create_series([watch_restarts])
        self.metric_set.gauge(build_info).labels(version("penstock")).set(1)

    def observe_credentials(self, configuration: Any) -> None:
        """Expose when the credentials of this configuration expire, also after they are rotated."""
        self._configuration = configuration

    def count_watch_restart(self, resource: str) -> None:
        """Count that all objects of a watched kind are listed again."""
        self._watch_restarts.labels(resource).inc()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all series as text, and its content type. accept: header of the request."""
        if self._configuration is not None:
            for credential, time_s in expiry_times_s(self._configuration).items():
                self._credential_expiry.labels(credential).set(time_s)
        return self.metric_set.render(accept)
