"""The simulated engine: the real scheduler with a time model in place of the runner; runs of decode
iterations are advanced at once (a leap)."""
