"""The schema of the InferenceService: its spec by field, its status, and the object."""
