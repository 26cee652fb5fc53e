"""Proxies one request: reads it, tries endpoints, and relays the response."""
