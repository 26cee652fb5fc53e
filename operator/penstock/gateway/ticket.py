"""One request's place in the account of its service."""

import contextlib
import math
from collections.abc import Callable, Iterator

from penstock.core.signals import attended_tokens
from penstock.gateway.account import Account
from penstock.gateway.answer_count import AnswerCount
from penstock.gateway.seat import Seat

# A client that takes longer than this for a part of its answer is waited for: the socket's buffer is full.
BLOCKED_AFTER_S = 0.05
# A client that is waited for during more than this share of a stream hides the engine's pace.
MAX_BLOCKED_SHARE = 0.1


class Ticket:
    """now: the monotonic clock. came_s: when the request was complete, on it. prompt_bytes: of the
    prompt's text."""

    def __init__(
        self,
        account: Account,
        now: Callable[[], float],
        came_s: float,
        prompt_bytes: int,
        *,
        is_stream: bool,
        is_chat: bool,
        tenant: str | None = None,
    ) -> None:
        self._account = account
        self._now = now
        self._prompt_bytes = prompt_bytes
        self._is_stream = is_stream
        self._tenant = tenant
        self._overhead = 2 if is_chat else 1
        self._count = AnswerCount(is_stream=is_stream, overhead=self._overhead)
        self._pod: str | None = None
        self._seat: Seat | None = None
        self._is_lost = self._is_excused = False
        # From here on it is the engine's time: what another one lost before is not laid to this one.
        self._since_s = came_s
        self._sent_s = self._first_s = self._last_s = came_s
        self._ahead = 0
        self._beside = 0.0
        self._blocked_s = 0.0
        self._charged: set[str] = set()  # engines that have failed it, counted as such
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
        """The engine failed the request, whether or not another one answers it now."""
        if pod not in self._charged:
            self._charged.add(pod)
            self._account.arm(pod).failed(self._tenant)

    def begins(self, *, is_stream: bool) -> None:
        """The engine's answer is there. is_stream: of events, whatever the request asked for."""
        self._is_stream = is_stream
        self._count = AnswerCount(is_stream=is_stream, overhead=self._overhead)

    def answered(self, chunk: bytes) -> None:
        """More of the answer came from the engine."""
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
        """The client took so long for a part of its answer."""
        if seconds > BLOCKED_AFTER_S:
            self._blocked_s += seconds

    def lose(self) -> None:
        """The answer breaks off."""
        self._is_lost = True

    def excuse(self) -> None:
        """However it ends, it is not the engine's doing."""
        self._is_excused = True

    def close(self, status: int) -> None:
        """status: what the client was told. One that left, or asked wrongly, counts as neither."""
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
            if told_tokens is not None:
                estimate = account.token_estimate
                account.token_estimate = estimate.observe(self._prompt_bytes, told_tokens)
            prompt_tokens = self.prompt_tokens if told_tokens is None else told_tokens
            account.output_tokens += output_tokens
            account.attended_tokens += attended_tokens(prompt_tokens, output_tokens)
            self._time()
            self._judge()

    def _time(self) -> None:
        """Of streams alone: the first byte of a whole answer is its last."""
        if not self._is_stream:
            return
        self._account.ttft_s.add(self._first_s - self.came_s)
        if self._tpot_s is not None:
            self._account.tpot_s.add(self._tpot_s)

    def _judge(self) -> None:
        """What the answer says of its engine."""
        assert self._pod is not None
        arm, count = self._account.arm(self._pod), self._count
        arm.ended(
            count.output_tokens,
            self._ahead,
            is_empty=not count.has_text,
            violates=self._violates,
            tenant=self._tenant,
        )
        prompt_tokens = count.prompt_tokens
        if prompt_tokens is not None:
            arm.told(prompt_tokens, count.cached_tokens)
        if self._is_stream:
            arm.timed(
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
        """None of one token, and where the client was what was waited for."""
        gaps, span_s = self._count.output_tokens - 1, self._last_s - self._first_s
        if gaps <= 0 or self._blocked_s > MAX_BLOCKED_SHARE * span_s:
            return None
        return span_s / gaps

    @property
    def _allowed_s(self) -> float:
        """Until the first byte: of a whole answer what both objectives allow together."""
        objectives = self._account.objectives
        if objectives is None:
            return math.inf
        gaps = 0 if self._is_stream else max(0, self._count.output_tokens - 1)
        return objectives.ttft_s + objectives.tpot_s * gaps

    @property
    def _is_late(self) -> bool:
        """As the client sees it, whoever lost the time."""
        return self._first_s - self.came_s > self._allowed_s

    @property
    def _violates(self) -> bool:
        objectives = self._account.objectives
        if objectives is not None and self._is_stream and (self._tpot_s or 0) > objectives.tpot_s:
            return True
        return self._ttft_s > self._allowed_s
