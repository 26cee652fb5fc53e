"""Fixtures of the batch server."""
