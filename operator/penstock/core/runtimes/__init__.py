"""Runtimes: the programs that serve a model in an engine pod, and how each takes the spec's settings."""
