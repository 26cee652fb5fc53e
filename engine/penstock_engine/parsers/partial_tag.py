"""Detects a tag that is cut off by the end of a text chunk."""


def partial_tag_overlap(text: str, tag: str) -> int:
    """Returns the length of the longest suffix of `text` that is a proper prefix of `tag`."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)
