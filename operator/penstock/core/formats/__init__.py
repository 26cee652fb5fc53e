"""Quantities, timestamps, addresses, merge patches, and frozen dataclasses as JSON.

Imports nothing.
"""
