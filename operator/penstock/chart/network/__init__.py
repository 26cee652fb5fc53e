"""NetworkPolicies of Penstock's own components, and their values."""
