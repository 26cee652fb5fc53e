"""Runs that compare routing rules: scenarios, events and summaries."""
