"""The observed state: child objects, the stored rollout, and reports of gateways, as records.

Imports canary, scaling and what is below them.
"""
