"""The schema of the ModelRoute."""
