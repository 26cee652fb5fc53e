"""Rules that pick an engine for each request: Penstock's own, and those of other routers."""
