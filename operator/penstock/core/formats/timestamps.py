"""Converts between Unix time and Kubernetes timestamps (RFC 3339, UTC)."""

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Format Unix time as a Kubernetes timestamp, truncated to seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> float:
    """Parse a Kubernetes timestamp to Unix time."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
