"""How a service gets from one revision to the next."""
