"""Tells pods that find no room in a ResourceQuota from pods that are forbidden for good."""

# Words of the API server's admission plugin about a quota that is full. A quota also refuses pods without
# the limits that it counts, in other words: no room in it would help those.
EXCEEDED = "exceeded quota"


def exceeds_quota(message: str) -> bool:
    """Whether the API server refused a pod because a quota has no room for it at present."""
    return EXCEEDED in message
