"""Mirrored copies of requests."""
