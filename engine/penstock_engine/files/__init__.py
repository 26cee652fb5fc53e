"""Bounded reading of untrusted files and JSON."""
