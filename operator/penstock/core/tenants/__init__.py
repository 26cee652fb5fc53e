"""Tenants: who belongs to them, what they may use, and how much."""
