"""Penstock's control plane: operator, gateway, commands, simulator, and the core that decides for them."""
