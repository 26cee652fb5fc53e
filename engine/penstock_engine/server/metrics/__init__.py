"""The engine's Prometheus metrics, and the facts about requests that they count."""
