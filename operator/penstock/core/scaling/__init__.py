"""Decides how many replicas run: by KV-cache use, or by latency objectives; then budget and quota."""
