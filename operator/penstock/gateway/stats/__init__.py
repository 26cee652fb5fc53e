"""Statistics of requests, which the operator scrapes."""
