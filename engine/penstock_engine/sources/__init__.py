"""Fetches models from the hub, registries and web servers into a folder or a shared cache."""
