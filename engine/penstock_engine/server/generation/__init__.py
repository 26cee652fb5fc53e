"""Generates the choices of a request within their format, and records them as log lines and spans."""
