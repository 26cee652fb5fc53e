"""API keys of tenants: create, list, rotate, revoke, prune."""
