"""The desired state: an InferenceService as core records, its revisions and their history."""
