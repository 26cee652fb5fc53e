"""Commands that run a server: the operator or the gateway."""
