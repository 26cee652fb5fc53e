"""Measures a running engine with a short sweep, and fits a model of its iteration times."""
