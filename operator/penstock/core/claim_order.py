"""Which object has a name that several claim: the oldest, and within one second the first by name."""

from penstock.core.service import Object


def claim_order(metadata: Object) -> tuple[str, str, str]:
    """Sorts the winner first. Times of the API server sort as text: RFC 3339 in UTC, to the second."""
    return str(metadata["creationTimestamp"]), str(metadata["namespace"]), str(metadata["name"])
