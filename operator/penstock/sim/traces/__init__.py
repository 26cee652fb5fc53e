"""Readers of public request traces, one module for each format."""
