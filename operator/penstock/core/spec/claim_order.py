"""Decides which of several objects gets a name that all claim: the oldest, then the first by name."""

from penstock.core.spec.service import Object


def claim_order(body: Object) -> tuple[str, str, str]:
    """Sort key of an object; the winner comes first. Kubernetes times (RFC 3339 in UTC) sort as text."""
    metadata = body["metadata"]
    return str(metadata["creationTimestamp"]), str(metadata["namespace"]), str(metadata["name"])
