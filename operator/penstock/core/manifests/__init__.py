"""Renders Kubernetes objects as plain data.

Imports observed and what is below it.
"""
