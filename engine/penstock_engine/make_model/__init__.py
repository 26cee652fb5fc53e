"""Making a small model that speaks like the given texts, for demos and tests."""
