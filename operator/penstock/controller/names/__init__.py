"""Which object answers under a model name that several claim."""
