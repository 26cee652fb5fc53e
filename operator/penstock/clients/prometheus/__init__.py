"""Prometheus servers: PromQL queries, those of metric gates, and metrics of engines out of reach."""
