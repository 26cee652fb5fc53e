"""Batches: files of requests that run on idle capacity, their states and rules."""
