"""Callers of requests: their tenants, and how clients prove to belong to them."""
