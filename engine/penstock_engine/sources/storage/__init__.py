"""The store of fetched files: leases, partial files, models, and evictions."""
