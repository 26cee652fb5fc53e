"""Reads files and JSON that others have written."""
