"""Admission queues of services with latency objectives, and reserved slots at endpoints."""
