"""Formats network addresses for URLs."""


def host_port(host: str, port: int) -> str:
    """Join host and port for a URL. host: a name or an IP address; IPv6 addresses get brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
