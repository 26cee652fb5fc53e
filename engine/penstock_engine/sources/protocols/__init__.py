"""Protocols of sources: the hub, registries and web servers."""
