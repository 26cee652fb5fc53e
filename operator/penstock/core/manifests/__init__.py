"""Renders Kubernetes objects as dicts.

Imports observed and what is below it.
"""
