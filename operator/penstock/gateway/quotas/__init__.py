"""Limits that tenants have over all gateways, and the ledger of what they use."""
