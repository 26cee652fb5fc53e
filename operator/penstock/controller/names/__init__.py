"""Resolves model names that several objects claim."""
