"""Reconciles ModelRoutes."""
