"""The wanted state: an InferenceService in plain units, its revisions and their history.

Imports formats.
"""
