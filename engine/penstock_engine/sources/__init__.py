"""Fetches models from the hub, object stores, registries and web servers into a folder or a shared cache."""
