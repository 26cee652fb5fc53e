"""Clients of the systems outside Penstock: the Kubernetes API, Prometheus, the metrics of engines and
gateways, the machine's clock and its caches. No process imports another's."""
