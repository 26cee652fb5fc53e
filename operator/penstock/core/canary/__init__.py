"""Judges a canary: evidence by block of time in, a verdict with its reason out.

Imports routing, spec and formats.
"""
