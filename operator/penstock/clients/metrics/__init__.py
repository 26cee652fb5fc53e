"""Metrics of this process, and the HTTP server that shows them."""
