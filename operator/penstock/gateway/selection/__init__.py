"""Selects the service, the adapter and the endpoint of one request."""
