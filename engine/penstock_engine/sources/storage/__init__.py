"""The store that fetched files are in: leases, partial files, models, and what leaves it."""
