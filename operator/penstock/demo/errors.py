"""Errors of the demo."""


class StoryFailed(Exception):
    """A step of the demo had an unexpected result."""
