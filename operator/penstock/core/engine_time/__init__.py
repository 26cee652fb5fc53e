"""Time that an engine takes for its work: a model of its iterations, and its fit to measurements."""
