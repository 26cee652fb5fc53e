"""The gateway's values and objects."""
