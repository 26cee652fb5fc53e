"""Connections that the NetworkPolicies allow: one table for documentation, tests and measurements."""
