"""Protocols of sources: the hub, object stores, registries and web servers."""
