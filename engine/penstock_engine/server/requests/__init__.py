"""Schemas of requests, and their conversion to sampling parameters, grammars and prompts."""
