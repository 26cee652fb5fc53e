"""The metrics of the gateway about external models."""

from penstock.observability.metrics.gateway_tenants import TENANT
from penstock.observability.metrics.specs import Label, MetricSpec, counter

EXTERNAL_MODEL = Label("external_model", "`namespace/name` of the ExternalModels that exist")
EXTERNAL_TOKENS_KIND = Label("kind", ("prompt", "output"))
CURRENCY = Label("currency", "currency of `spec.price`, such as USD")
OPTIONAL_TENANT = Label(
    TENANT.name, "name of the Tenant that sent the requests; empty: the gateway is open"
)

EXTERNAL_TOKENS = counter(
    "penstock_gateway_external_tokens_total",
    "Tokens of requests that an external model answered, prompts estimated where the response has no usage.",
    OPTIONAL_TENANT,
    EXTERNAL_MODEL,
    EXTERNAL_TOKENS_KIND,
)
EXTERNAL_COST = counter(
    "penstock_gateway_external_cost_total",
    "Cost of these tokens by `spec.price` of the ExternalModel.",
    OPTIONAL_TENANT,
    EXTERNAL_MODEL,
    CURRENCY,
)
EXTERNAL_METRICS: tuple[MetricSpec, ...] = (EXTERNAL_TOKENS, EXTERNAL_COST)
