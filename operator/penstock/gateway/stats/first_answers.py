"""The first answer of each session-affinity key on one arm of a canary's comparison.

A client with a key stays on its arm, and may learn which one it is. Only the arm of its first answer is as
good as drawn at random: if later ones counted too, a client could ask the canary alone for empty answers.
"""

# Keys that are remembered, of an arm. 10,000 take 1.5 MB; a client would have to send as many requests with
# new keys until one counts as new again.
MAX_KEYS = 10_000


class FirstAnswers:
    """The keys that had an answer on one arm, oldest first."""

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}

    def add(self, key: bytes) -> bool:
        """Record an answer. Returns whether it is the first one of its key."""
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > MAX_KEYS:
            del self._keys[next(iter(self._keys))]
        return True
