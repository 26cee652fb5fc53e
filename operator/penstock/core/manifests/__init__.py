"""Renders Kubernetes objects as dicts."""
