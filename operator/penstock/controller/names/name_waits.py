"""Bounds the time for which a service waits until it is decided who has its model name."""

from penstock.clients.kubernetes.informer import Key

# Longest wait, in seconds. A new leader lists all objects in seconds, and a holder of the name is recorded in
# one pass. Beyond that, such as if holder after holder is deleted, the service answers by its full name.
MAX_WAIT_S = 30.0


class NameWaits:
    """Services that are ready to answer for the first time under a name that is not decided."""

    def __init__(self) -> None:
        self._started_s: dict[Key, float] = {}

    def may_wait(self, key: Key, now_s: float) -> bool:
        """Whether a service may go on waiting. now_s: of a monotonic clock."""
        return now_s - self._started_s.setdefault(key, now_s) < MAX_WAIT_S

    def end(self, key: Key) -> None:
        """Forget a service that does not wait, or is gone."""
        self._started_s.pop(key, None)
