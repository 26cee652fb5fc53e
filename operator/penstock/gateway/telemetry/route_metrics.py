"""The gateway's metrics of ModelRoutes and ExternalModels."""

from collections.abc import Collection

from penstock.clients.metrics.metric_set import MetricSet
from penstock.core.providers.external_model import ExternalModel
from penstock.observability.metrics import gateway as specs
from penstock.observability.metrics import gateway_external


class RouteMetrics:
    """Counts what ModelRoutes and ExternalModels get. made: the gateway's metrics."""

    def __init__(self, made: MetricSet) -> None:
        self._made = made
        self.requests = made.counter(specs.MODEL_ROUTE_REQUESTS)
        self.fallbacks = made.counter(specs.FALLBACKS)
        self._external_tokens = made.counter(gateway_external.EXTERNAL_TOKENS)
        self._external_cost = made.counter(gateway_external.EXTERNAL_COST)

    def keep_only(self, external_models: Collection[str]) -> None:
        """Remove the series of all other external models. external_models: "namespace/name"."""
        self._made.remove_others(gateway_external.EXTERNAL_MODEL.name, external_models)

    def count_external(
        self, tenant: str, model: ExternalModel, prompt_tokens: int, output_tokens: int
    ) -> None:
        """Count the tokens of a request that an external model answered, and their cost."""
        if not prompt_tokens + output_tokens:
            return
        self._external_tokens.labels(tenant, model.key, "prompt").inc(prompt_tokens)
        self._external_tokens.labels(tenant, model.key, "output").inc(output_tokens)
        if model.prices is not None:
            cost = model.prices.cost(prompt_tokens, output_tokens)
            labels = tenant, model.key, model.prices.currency
            self._external_cost.labels(*labels).inc(float(cost))
