"""Bounds the checks of invalid tokens that each client network causes."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

# Checks that a network may have failed in a row, or have in progress, and how many more it may each second.
# A check takes up to 1 ms of processor (ES384), so that one network takes 1 % of it at most.
BURST, PER_SECOND = 50.0, 10.0
# Most networks that are remembered; the one whose last check is longest ago is forgotten first.
MAX_NETWORKS = 4096


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float


class CheckBudget:
    """A token bucket for each client network. A check that succeeds costs nothing.

    now: the monotonic clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, network: str) -> bool:
        """Take one check. Returns whether the network has one left."""
        now_s = self._now()
        bucket = self._buckets.setdefault(network, _Bucket(BURST, now_s))
        self._buckets.move_to_end(network)
        if len(self._buckets) > MAX_NETWORKS:
            self._buckets.popitem(last=False)
        bucket.left = min(BURST, bucket.left + (now_s - bucket.at_s) * PER_SECOND)
        bucket.at_s = now_s
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True

    def give_back(self, network: str) -> None:
        """Give one check back, as it has not failed."""
        if (bucket := self._buckets.get(network)) is not None:
            bucket.left = min(BURST, bucket.left + 1)
