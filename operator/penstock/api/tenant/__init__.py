"""The schema of the Tenant."""
