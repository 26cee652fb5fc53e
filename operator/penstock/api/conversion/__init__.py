"""Conversion of InferenceServices from the API server to core's records."""
