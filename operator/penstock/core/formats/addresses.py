"""Addresses of pods as URLs have them."""


def host_port(host: str, port: int) -> str:
    """host: a name or an IP address; one of IPv6 gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
