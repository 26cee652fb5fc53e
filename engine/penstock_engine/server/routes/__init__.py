"""Routes besides chat and completions, many of which translate to these."""
