"""Data formats: quantities, timestamps, addresses, conditions, merge patches, and dataclasses as JSON."""
