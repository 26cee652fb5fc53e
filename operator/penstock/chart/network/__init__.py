"""NetworkPolicies of operator and gateway, and their values."""
