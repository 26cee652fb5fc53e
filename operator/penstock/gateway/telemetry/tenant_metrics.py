"""Metrics of what tenants use, and of the store of their limits."""

from collections.abc import Iterable

from penstock.clients.metrics.metric_set import MetricSet
from penstock.core.tenants.limits import Usage
from penstock.observability.metrics import gateway, gateway_tenants


class TenantMetrics:
    """Counts rejections and usage of tenants, and calls of the store. made: the metrics of the gateway."""

    def __init__(self, made: MetricSet) -> None:
        self.rejections = made.counter(gateway.TENANT_REJECTIONS)
        self._requests = made.counter(gateway_tenants.TENANT_REQUESTS)
        self._tokens = made.counter(gateway_tenants.TENANT_TOKENS)
        self._limit_used = made.gauge(gateway_tenants.TENANT_LIMIT_USED)
        self._store_up = made.gauge(gateway_tenants.QUOTA_STORE_UP)
        self._store_failures = made.counter(gateway_tenants.QUOTA_STORE_FAILURES)
        self._store_call_s = made.histogram(gateway_tenants.QUOTA_STORE_CALL_S)

    def count_usage(self, tenant: str, service: str, usage: Usage) -> None:
        """Count what a request has used."""
        self._requests.labels(tenant, service).inc(usage.requests)
        for kind, amount in (
            ("prompt", usage.prompt_tokens),
            ("cached", usage.cached_tokens),
            ("output", usage.output_tokens),
        ):
            if amount:
                self._tokens.labels(tenant, service, kind).inc(amount)

    def set_limits_used(self, used: Iterable[tuple[str, str, float]]) -> None:
        """Set how much of each limit is used. used: each tenant with its limit's name and the part."""
        self._limit_used.clear()
        for tenant, limit, part in used:
            self._limit_used.labels(tenant, limit).set(part)

    def note_call(self, seconds: float, *, is_failed: bool) -> None:
        """Count a call of the store."""
        self._store_call_s.observe(seconds)
        self._store_up.set(not is_failed)
        if is_failed:
            self._store_failures.inc()
