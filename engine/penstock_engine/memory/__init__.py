"""Checks before the start, without torch: a model's files, and its memory within a limit."""
