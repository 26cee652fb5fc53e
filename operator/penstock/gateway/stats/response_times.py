"""Times of the response to one request, and the latencies that follow from them."""

from collections.abc import Callable

# A write that takes longer waits for the client to read: the socket's buffer is full.
BLOCKED_AFTER_S = 0.05
# If writes waited for the client during more than this share of a stream, the times between tokens
# are the client's and are not taken as the engine's.
MAX_BLOCKED_SHARE = 0.1
# Share of a request's time that an engine has had it, from which the engine is at fault that it is late.
LATE_SHARE = 0.5


class ResponseTimes:
    """When one request arrived, was sent to an engine, and got the bytes of its response.

    now: the monotonic clock. arrived_s: when the client had sent all of the request, on that clock.
    """

    def __init__(self, now: Callable[[], float], arrived_s: float) -> None:
        self._now = now
        self._arrived_s = arrived_s
        # The current engine's latency counts from here: time that an earlier engine lost does not.
        self._engine_since_s = arrived_s
        self._sent_s = self.first_byte_s = self._last_byte_s = arrived_s
        self._blocked_s = 0.0

    def note_sent(self) -> None:
        """Record that an engine gets the request."""
        self._sent_s = self._now()

    def is_engine_late(self, expected_s: float) -> bool:
        """Whether the engine has had the request for most of its time, and for longer than was expected.

        The time before it was sent, such as that in an admission queue, is not the engine's.
        """
        now = self._now()
        at_engine_s = now - self._sent_s
        return at_engine_s >= max(expected_s, LATE_SHARE * (now - self._arrived_s))

    def note_failed_attempt(self) -> None:
        """Record that the engine has not responded."""
        self._engine_since_s = self._now()

    def note_chunk(self, *, is_first: bool) -> None:
        """Record that a chunk of the response has arrived."""
        self._last_byte_s = self._now()
        if is_first:
            self.first_byte_s = self._last_byte_s

    def add_write_time(self, seconds: float) -> None:
        """Add the time that a write to the client took."""
        if seconds > BLOCKED_AFTER_S:
            self._blocked_s += seconds

    @property
    def ttft_s(self) -> float:
        """Seconds from the arrival to the first byte, whichever engine lost the time."""
        return self.first_byte_s - self._arrived_s

    @property
    def engine_ttft_s(self) -> float:
        """Seconds to the first byte without the time that earlier engines lost."""
        return self.first_byte_s - self._engine_since_s

    @property
    def sent_answer_s(self) -> float:
        """Seconds from sending the request to the engine to the last byte, less what the client was slow."""
        return max(0.0, self._last_byte_s - self._sent_s - self._blocked_s)

    @property
    def sent_ttft_s(self) -> float:
        """Seconds from sending the request to the engine to the first byte."""
        return self.first_byte_s - self._sent_s

    def tpot_s(self, num_tokens: int) -> float | None:
        """Mean seconds between tokens; None for one token, and if the client was too slow to tell."""
        gaps, span_s = num_tokens - 1, self._last_byte_s - self.first_byte_s
        if gaps <= 0 or self._blocked_s > MAX_BLOCKED_SHARE * span_s:
            return None
        return span_s / gaps
