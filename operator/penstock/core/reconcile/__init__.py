"""Compares a spec with the observed state; returns a plan of writes, conditions and the status."""
