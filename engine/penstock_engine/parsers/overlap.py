"""Tags that may be cut by the ends of pieces."""


def overlap(text: str, tag: str) -> int:
    """The length of the longest end of `text` that begins `tag` without completing it."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)
