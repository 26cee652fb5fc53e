"""Who holds the objectives for the fewest GPU-hours: every rule tuned, then compared on other data."""
