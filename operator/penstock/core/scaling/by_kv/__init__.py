"""Scaling by KV-cache demand and queue length, for services without latency objectives."""
