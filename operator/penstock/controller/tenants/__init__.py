"""Reconciles Tenants."""
