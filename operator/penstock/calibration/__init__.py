"""How long a running engine's iterations take: a short sweep, and the model that fits it."""
