"""Decides which of several objects gets a name that all claim: the oldest, then the first by name."""

from penstock.core.spec.service import Object


def claim_order(metadata: Object) -> tuple[str, str, str]:
    """Sort key; the winner comes first. Kubernetes times (RFC 3339 in UTC) sort as text."""
    return str(metadata["creationTimestamp"]), str(metadata["namespace"]), str(metadata["name"])
