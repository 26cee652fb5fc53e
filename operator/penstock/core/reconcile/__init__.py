"""Compares spec with observed state: a plan of writes, the conditions and the status.

Imports all other packages of core.
"""
