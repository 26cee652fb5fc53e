"""Judges canaries on evidence from gateways, pods and the user's metrics."""
