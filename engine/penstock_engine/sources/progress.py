"""Progress of a fetch: counts of bytes, and a line of the log every few seconds."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from penstock_engine.contract.fetch_output import progress_text

INTERVAL_S = 5.0  # between lines
WINDOW = 6  # lines over which the rate is computed


@dataclass(frozen=True, slots=True)
class ProgressState:
    """Progress of a fetch at one time. bytes_per_s: over the network, in the last WINDOW intervals."""

    done_bytes: int
    total_bytes: int
    downloaded_bytes: int
    bytes_per_s: float


class Progress:
    """Counts the bytes of a fetch, and says every few seconds how far it is; a context manager.

    say: writes a line. Other parts of the fetch use it too. A progress may be entered again after its end.
    """

    def __init__(self, say: Callable[[str], None], interval_s: float = INTERVAL_S) -> None:
        self.say, self._interval_s = say, interval_s
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._mirrored: ProgressState | None = None
        self._total_bytes = self._done_bytes = self.downloaded_bytes = 0
        self._is_downloading = False
        self._samples = deque([(time.monotonic(), 0)], maxlen=WINDOW)

    def __enter__(self) -> "Progress":
        self._ended.clear()
        self._thread = threading.Thread(target=self._report, name="progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def downloading(self, total_bytes: int, done_bytes: int) -> Iterator[None]:
        """Count files that are downloaded in the context. done_bytes: downloaded by an earlier fetch."""
        with self._lock:
            self._total_bytes += total_bytes
            self._done_bytes += done_bytes
            self._is_downloading = True
        try:
            yield
        finally:
            self._is_downloading = False

    def add(self, num_bytes: int) -> None:
        """Count bytes that arrived."""
        with self._lock:
            self._done_bytes += num_bytes
            self.downloaded_bytes += num_bytes

    def undo(self, num_bytes: int) -> None:
        """Count bytes that have to be fetched again."""
        with self._lock:
            self._done_bytes -= num_bytes

    def mirror(self, state: ProgressState | None) -> None:
        """Show the progress of another process, which downloads for this one; None: its own again."""
        with self._lock:
            self._mirrored = state

    def state(self) -> ProgressState:
        """The present progress. Thread-safe."""
        with self._lock:
            if self._mirrored is not None:
                return self._mirrored
            arrived = self.downloaded_bytes
            rate = mean_rate([*self._samples, (time.monotonic(), arrived)])
            return ProgressState(self._done_bytes, self._total_bytes, arrived, rate)

    def _report(self) -> None:
        while not self._ended.wait(self._interval_s):
            state = self.state()
            with self._lock:
                self._samples.append((time.monotonic(), self.downloaded_bytes))
                is_mirrored = self._mirrored is not None and state.total_bytes > 0
            if self._is_downloading or is_mirrored:
                text = progress_text(state.done_bytes, state.total_bytes, state.bytes_per_s)
                self.say(f"Fetching: {text}")


def mean_rate(samples: list[tuple[float, int]]) -> float:
    """Bytes per second between the first and the last of samples, which are (time in seconds, bytes)."""
    seconds = sum(after[0] - before[0] for before, after in pairwise(samples))
    return (samples[-1][1] - samples[0][1]) / seconds if seconds > 0 else 0.0
