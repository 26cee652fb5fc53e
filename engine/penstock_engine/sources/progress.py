"""Progress of a fetch, as lines of a log at a steady pace."""

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise

INTERVAL_S = 5.0  # between lines
WINDOW = 6  # lines over which the rate is computed
GIB, MIB = 1 << 30, 1 << 20


class Progress:
    """Counts the bytes of a fetch, and says every few seconds how far it is; a context manager.

    say: writes a line.
    """

    def __init__(self, say: Callable[[str], None], interval_s: float = INTERVAL_S) -> None:
        self._say, self._interval_s = say, interval_s
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._total_bytes = self._done_bytes = self.downloaded_bytes = 0
        self._thread = threading.Thread(target=self._report, name="progress", daemon=True)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def plan(self, total_bytes: int, done_bytes: int) -> None:
        """Set how much there is, and how much of it an earlier fetch has left."""
        with self._lock:
            self._total_bytes, self._done_bytes = total_bytes, done_bytes

    def add(self, num_bytes: int) -> None:
        """Count bytes that arrived."""
        with self._lock:
            self._done_bytes += num_bytes
            self.downloaded_bytes += num_bytes

    def undo(self, num_bytes: int) -> None:
        """Count bytes that have to be fetched again."""
        with self._lock:
            self._done_bytes -= num_bytes

    def _report(self) -> None:
        samples = deque([(time.monotonic(), 0)], maxlen=WINDOW)
        while not self._ended.wait(self._interval_s):
            with self._lock:
                done, total, arrived = self._done_bytes, self._total_bytes, self.downloaded_bytes
            samples.append((time.monotonic(), arrived))
            if total:
                self._say(progress_line(done, total, mean_rate(list(samples))))


def mean_rate(samples: list[tuple[float, int]]) -> float:
    """Bytes per second between the first and the last of samples, which are (time in seconds, bytes)."""
    seconds = sum(after[0] - before[0] for before, after in pairwise(samples))
    return (samples[-1][1] - samples[0][1]) / seconds if seconds > 0 else 0.0


def progress_line(done_bytes: int, total_bytes: int, bytes_per_s: float) -> str:
    """A line such as `Fetching: 3.1 of 14.2 GiB, 210 MiB/s, 55 s left`."""
    unit, name = (GIB, "GiB") if total_bytes >= GIB else (MIB, "MiB")
    line = f"Fetching: {done_bytes / unit:.1f} of {total_bytes / unit:.1f} {name}"
    if bytes_per_s <= 0:
        return f"{line}, nothing arrives"
    left_s = (total_bytes - done_bytes) / bytes_per_s
    return f"{line}, {bytes_per_s / MIB:.1f} MiB/s, {left_s:.0f} s left"
