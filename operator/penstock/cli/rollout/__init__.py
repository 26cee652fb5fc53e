"""`penstock rollout`: shows and controls the rollout of a service or an adapter."""
