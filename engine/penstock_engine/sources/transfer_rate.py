"""Detects a connection that delivers too few bytes per second."""

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits


class TransferRate:
    """The rate of one connection since the window began. now_s: of a monotonic clock."""

    def __init__(self, limits: FetchLimits, now_s: float) -> None:
        self._limits, self._start_s, self._num_bytes = limits, now_s, 0

    def add(self, num_bytes: int, now_s: float) -> None:
        """Count bytes that arrived. Raises FetchError (TooSlow) at the end of a window with too few."""
        self._num_bytes += num_bytes
        seconds = now_s - self._start_s
        if seconds < self._limits.rate_window_s:
            return
        if self._num_bytes < self._limits.min_bytes_per_s * seconds:
            raise FetchError(
                "TooSlow",
                f"the server sent {self._num_bytes / seconds / 1024:.1f} KiB/s over {seconds:.0f} s, less "
                f"than {self._limits.min_bytes_per_s / 1024:.0f}: check the network, or use a mirror nearby",
                is_retryable=True,
            )
        self._start_s, self._num_bytes = now_s, 0
