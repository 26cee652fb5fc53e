"""Commands that run a server: the operator, the gateway or the batch server."""
