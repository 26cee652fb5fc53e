"""The gateway's metrics of what tenants use, and of the store of their limits."""

from penstock.observability.metrics.specs import (
    SERVICE,
    Label,
    MetricSpec,
    counter,
    gauge,
    histogram,
)

TENANT = Label("tenant", "names of the Tenants that exist")
# Upper bounds of a call of the quota store, in seconds, up to its time limit.
QUOTA_CALL_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)

TENANT_REQUESTS = counter(
    "penstock_gateway_tenant_requests_total",
    "Requests of tenants that an engine has worked for.",
    TENANT,
    SERVICE,
)
TENANT_TOKENS = counter(
    "penstock_gateway_tenant_tokens_total",
    "Tokens of requests of tenants, also of those that were cut off. cached: those of the prompt that came "
    "from a cache, which prompt counts too.",
    TENANT,
    SERVICE,
    Label("kind", ("prompt", "cached", "output")),
)
TENANT_LIMIT_USED = gauge(
    "penstock_gateway_tenant_limit_used_ratio",
    "Part of a tenant's limit that is used in its present window, as far as the gateway knows. Of its share "
    "while it does not reach the store of limits.",
    TENANT,
    Label("limit", "names of the tenant's limits"),
)
QUOTA_STORE_UP = gauge(
    "penstock_gateway_quota_store_up",
    "1 while the store of limits that gateways share answers; 0 also without one.",
)
QUOTA_STORE_FAILURES = counter(
    "penstock_gateway_quota_store_failures_total",
    "Calls of the store of limits that gateways share which failed or took too long.",
)
QUOTA_STORE_CALL_S = histogram(
    "penstock_gateway_quota_store_call_seconds",
    "Time of a call of the store of limits that gateways share.",
    buckets=QUOTA_CALL_SECONDS,
)
TENANT_METRICS: tuple[MetricSpec, ...] = (
    TENANT_REQUESTS, TENANT_TOKENS, TENANT_LIMIT_USED, QUOTA_STORE_UP,
    QUOTA_STORE_FAILURES, QUOTA_STORE_CALL_S,
)  # fmt: skip
