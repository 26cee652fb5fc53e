"""Command-line flags: names, types, defaults and parsing."""
