"""The batch server's values and objects."""
