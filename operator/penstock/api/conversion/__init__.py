"""Conversion of objects from the API server to core's records."""
