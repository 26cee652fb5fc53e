"""Interface of the metrics of quotas (`telemetry/tenant_metrics.py`)."""

from typing import Protocol

from penstock.core.tenants.limits import Usage


class QuotaMetrics(Protocol):
    """Counts the usage of tenants and calls of the store."""

    def count_usage(self, tenant: str, service: str, usage: Usage) -> None:
        """Count what a request has used."""

    def note_call(self, seconds: float, *, is_failed: bool) -> None:
        """Count a call of the store."""
