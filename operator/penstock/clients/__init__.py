"""Clients of the systems outside Penstock: the Kubernetes API, Prometheus, the pods of engines and gateways,
and the machine."""
