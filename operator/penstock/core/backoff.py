"""Exponential back-off."""

# Far more doublings than any longest pause needs, and far fewer than overflow a float.
MAX_DOUBLINGS = 64


def backoff_s(num_before: int, first_s: float, longest_s: float) -> float:
    """The pause after a failure, in seconds; each is twice as long as the one before.

    num_before: pauses before this one, in a row.
    """
    return min(longest_s, first_s * 2.0 ** min(num_before, MAX_DOUBLINGS))
