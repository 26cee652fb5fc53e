"""Judges a canary: evidence by block of time in, a verdict with its reason out."""
