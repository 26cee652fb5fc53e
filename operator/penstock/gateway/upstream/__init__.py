"""Requests to engines and the engines' responses."""
