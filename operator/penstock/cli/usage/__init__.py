"""The usage of tenants, from the ledger that gateways keep."""
