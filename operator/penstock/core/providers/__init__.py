"""Providers of external models: their URLs, limits, prices and keys."""
