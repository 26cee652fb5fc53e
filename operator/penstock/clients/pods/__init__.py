"""Pods of engines and gateways: connections, metrics, stats reports, lists of adapters."""
