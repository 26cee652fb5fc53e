"""Commands that run the simulator, or measure an engine for it."""
