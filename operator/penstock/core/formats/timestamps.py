"""Times as Kubernetes writes them."""

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes writes them, to the second, in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> float:
    """Seconds since the epoch of a Kubernetes timestamp."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
