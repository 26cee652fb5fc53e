"""The operator's values and objects."""
