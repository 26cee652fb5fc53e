"""Access rights of operator, gateway and users."""
