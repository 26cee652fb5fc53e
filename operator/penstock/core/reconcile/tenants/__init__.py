"""Status of Tenants."""
