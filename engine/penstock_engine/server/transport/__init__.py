"""Bodies in, answers out: errors, JSON, deadlines, limits on bodies, clients that disconnect."""
