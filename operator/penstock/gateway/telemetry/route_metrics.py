"""The gateway's metrics of ModelRoutes."""

from penstock.clients.metrics.metric_set import MetricSet
from penstock.observability.metrics import gateway as specs


class RouteMetrics:
    """Counts requests by the ModelRoute that led them to a service. made: the gateway's metrics."""

    def __init__(self, made: MetricSet) -> None:
        self.requests = made.counter(specs.MODEL_ROUTE_REQUESTS)
        self.fallbacks = made.counter(specs.FALLBACKS)
