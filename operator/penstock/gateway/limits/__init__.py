"""Limits that requests and services share: connections, memory, retries."""
