"""Data formats: quantities, timestamps, addresses, merge patches, and dataclasses as JSON.

Imports nothing.
"""
