"""Generators of CRDs, of their golden files and of their reference pages, from the schemas."""
