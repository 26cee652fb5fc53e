"""The simulated engine: the real scheduler, iterations by leaps, and a time model in place of the runner."""
