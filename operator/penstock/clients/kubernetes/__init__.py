"""The Kubernetes API: requests, watches, errors, credentials, Events."""
