"""Times and outcome of one request, for the statistics of its service."""

import contextlib
import math
from collections.abc import Callable, Iterator

from penstock.core.scaling.signals import attended_tokens
from penstock.gateway.account import Account
from penstock.gateway.answer_count import AnswerCount
from penstock.gateway.seat import Seat

# A write that takes longer waits for the client to read: the socket's buffer is full.
BLOCKED_AFTER_S = 0.05
# If writes waited for the client during more than this share of a stream, the times between tokens
# are the client's, and not taken as the engine's.
MAX_BLOCKED_SHARE = 0.1


class Ticket:
    """Follows one request. now: the monotonic clock. came_s: when the request was complete, on that
    clock. prompt_bytes: length of the prompt's text. is_text_only: whether it has no other parts."""

    def __init__(
        self,
        account: Account,
        now: Callable[[], float],
        came_s: float,
        prompt_bytes: int,
        *,
        is_stream: bool,
        is_chat: bool,
        is_text_only: bool = True,
        tenant: str | None = None,
    ) -> None:
        self._account = account
        self._now = now
        self._prompt_bytes = prompt_bytes
        self._is_text_only = is_text_only
        self._is_stream = is_stream
        self._tenant = tenant
        self._overhead = 2 if is_chat else 1
        self._count = AnswerCount(is_stream=is_stream, overhead=self._overhead)
        self._pod: str | None = None
        self._seat: Seat | None = None
        self._is_lost = self._is_excused = False
        # The current engine's latency counts from here: time that an earlier engine lost does not.
        self._since_s = came_s
        self._sent_s = self._first_s = self._last_s = came_s
        self._ahead = 0
        self._beside = 0.0
        self._blocked_s = 0.0
        self._charged: set[str] = set()  # engines whose failure is counted
        self.has_begun = False
        self.came_s = came_s
        self.prompt_tokens = account.token_estimate.of(prompt_bytes)
        account.arrivals += 1
        account.prompt_tokens += self.prompt_tokens

    @contextlib.contextmanager
    def queued(self) -> Iterator[None]:
        self._account.queued.add(self)
        try:
            yield
        finally:
            self._account.queued.discard(self)

    @contextlib.contextmanager
    def sent(self, pod: str, seat: Seat | None) -> Iterator[None]:
        """pod: of the engine, "namespace/name". seat: what the request has of it, if that is kept."""
        self._pod, self._seat = pod, seat
        if seat is not None and not self._is_stream:
            seat.presume()
        self._account.in_flight.add(self)
        self._ahead, self._beside = self._account.given(pod)
        self._sent_s = self._now()
        try:
            yield
        finally:
            self._account.in_flight.discard(self)
            self._beside = (self._beside + self._account.left(pod)) / 2
            if not self.has_begun:
                self._since_s = self._now()
                self._account.answered(pod)
            if seat is not None:
                seat.left()

    def attempt_failed(self, pod: str) -> None:
        """Count, once, that the engine failed the request, even if another engine answers it."""
        if pod not in self._charged:
            self._charged.add(pod)
            self._account.arm(pod).record_failure(self._tenant)

    def begins(self, *, is_stream: bool) -> None:
        """Start the answer. is_stream: whether it is a stream, whatever the request asked for."""
        self._is_stream = is_stream
        self._count = AnswerCount(is_stream=is_stream, overhead=self._overhead)

    def answered(self, chunk: bytes) -> None:
        """Count a chunk of the answer from the engine."""
        self._last_s = self._now()
        self._count.feed(chunk)
        if self.has_begun:
            return
        self.has_begun, self._first_s = True, self._last_s
        if self._pod is not None:
            self._account.answered(self._pod)
        if self._seat is not None and self._is_stream and not self._count.has_error:
            self._seat.began(self._first_s)

    def blocked(self, seconds: float) -> None:
        """Add the time that a write to the client took."""
        if seconds > BLOCKED_AFTER_S:
            self._blocked_s += seconds

    def lose(self) -> None:
        """Count the request as failed: its answer was cut off."""
        self._is_lost = True

    @property
    def has_error(self) -> bool:
        """Whether the answer has an error event, whoever is to blame."""
        return self._count.has_error

    @property
    def has_failed(self) -> bool:
        """Whether the answer has an error event that is the engine's."""
        return self._count.has_failed

    def excuse(self) -> None:
        """Do not blame the engine for the outcome."""
        self._is_excused = True

    def close(self, status: int) -> None:
        """Count the outcome. status: sent to the client; 4xx and disconnects are not counted."""
        account = self._account
        is_lost = self._is_lost or self._count.has_failed
        if is_lost or (status >= 500 and self._pod is not None):
            account.failed += 1
            if self._pod is not None and not self._is_excused:
                self.attempt_failed(self._pod)
        elif status >= 500:
            account.shed += 1
        elif status < 400 and self.has_begun:
            account.ended += 1
            account.late += self._is_late
            told_tokens, output_tokens = self._count.prompt_tokens, self._count.output_tokens
            if told_tokens is not None and self._is_text_only:
                estimate = account.token_estimate
                account.token_estimate = estimate.observe(self._prompt_bytes, told_tokens)
            prompt_tokens = self.prompt_tokens if told_tokens is None else told_tokens
            account.output_tokens += output_tokens
            account.attended_tokens += attended_tokens(prompt_tokens, output_tokens)
            self._time()
            self._judge()

    def _time(self) -> None:
        """Record TTFT and TPOT of a stream; another answer comes all at once and has neither."""
        if not self._is_stream:
            return
        self._account.ttft_s.add(self._first_s - self.came_s)
        if self._tpot_s is not None:
            self._account.tpot_s.add(self._tpot_s)

    def _judge(self) -> None:
        """Add the answer to the statistics of its engine."""
        assert self._pod is not None
        arm, count = self._account.arm(self._pod), self._count
        arm.record_completion(
            count.output_tokens,
            self._ahead,
            is_empty=not count.has_text,
            violates=self._violates,
            tenant=self._tenant,
        )
        prompt_tokens = count.prompt_tokens
        if prompt_tokens is not None:
            arm.record_cached_tokens(prompt_tokens, count.cached_tokens)
        if self._is_stream:
            arm.record_latency(
                prompt_tokens or self.prompt_tokens,
                self._ahead,
                self._beside,
                self._first_s - self._sent_s,
                self._tpot_s,
                overall_s=self._ttft_s,
                tenant=self._tenant,
            )

    @property
    def _ttft_s(self) -> float:
        return self._first_s - self._since_s

    @property
    def _tpot_s(self) -> float | None:
        """Mean seconds between tokens; None for one token, and if the client was too slow to tell."""
        gaps, span_s = self._count.output_tokens - 1, self._last_s - self._first_s
        if gaps <= 0 or self._blocked_s > MAX_BLOCKED_SHARE * span_s:
            return None
        return span_s / gaps

    @property
    def _allowed_s(self) -> float:
        """Seconds allowed until the first byte: TTFT; plus TPOT for each gap if it is no stream."""
        objectives = self._account.objectives
        if objectives is None:
            return math.inf
        gaps = 0 if self._is_stream else max(0, self._count.output_tokens - 1)
        return objectives.ttft_s + objectives.tpot_s * gaps

    @property
    def _is_late(self) -> bool:
        """Whether the client saw its answer late, whichever engine lost the time."""
        return self._first_s - self.came_s > self._allowed_s

    @property
    def _violates(self) -> bool:
        objectives = self._account.objectives
        if objectives is not None and self._is_stream and (self._tpot_s or 0) > objectives.tpot_s:
            return True
        return self._ttft_s > self._allowed_s
