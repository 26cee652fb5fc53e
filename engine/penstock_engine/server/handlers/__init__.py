"""Handles generation requests: shared state, stored responses, admission, preprocessing, response."""
