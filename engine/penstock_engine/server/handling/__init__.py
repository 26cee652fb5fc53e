"""Handles generation requests: shared state, admission, preprocessing, response."""
