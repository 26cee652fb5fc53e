"""The operator: follows objects, plans with `core`, and writes what the plans say."""
