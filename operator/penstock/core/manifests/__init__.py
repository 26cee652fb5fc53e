"""Specs rendered as Kubernetes objects, as plain data."""
