"""Scaling rule by latency objectives: offered load, its forecast, and the replicas that it needs."""
