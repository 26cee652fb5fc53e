"""What came of the requests of each service, for the operator that sizes it."""

import contextlib
from collections.abc import Iterable, Iterator

from penstock.adapters.clock import monotonic, wall
from penstock.core.feed import VERSION, Feed
from penstock.core.signals import GatewayReading
from penstock.core.tally import Tally
from penstock.gateway.answer_count import AnswerCount
from penstock.gateway.openai import BYTES_PER_TOKEN
from penstock_engine.wire import BETWEEN_TOKENS_S, FIRST_TOKEN_S

# How much of the first estimate, and of what was learned, a request leaves: a mean over hundreds.
MEMORY = 0.995
FIRST_BELIEF_TOKENS = 5_000.0


class Account:
    """One service's, since this process began. Tokens of prompts are estimated from bytes, at the
    ratio of the answers whose engine told them."""

    def __init__(self) -> None:
        self.arrivals = self.prompt_tokens = self.ended = self.output_tokens = 0
        self.shed = self.failed = 0
        self.ttft_s, self.tpot_s = Tally(FIRST_TOKEN_S), Tally(BETWEEN_TOKENS_S)
        self.queued: set[Ticket] = set()
        self.in_flight: set[Ticket] = set()
        self._known_tokens = FIRST_BELIEF_TOKENS
        self._known_bytes = FIRST_BELIEF_TOKENS * BYTES_PER_TOKEN

    def estimate_tokens(self, body_bytes: int) -> int:
        return max(1, round(body_bytes * self._known_tokens / self._known_bytes))

    def told(self, body_bytes: int, prompt_tokens: int) -> None:
        self._known_tokens = MEMORY * self._known_tokens + prompt_tokens
        self._known_bytes = MEMORY * self._known_bytes + body_bytes

    def reading(self, at_s: float, now_s: float) -> GatewayReading:
        """at_s: since the epoch; now_s: of the monotonic clock."""
        oldest_s = min((ticket.came_s for ticket in self.queued), default=now_s)
        return GatewayReading(
            at_s=at_s,
            queued=len(self.queued),
            queued_prompt_tokens=sum(t.prompt_tokens for t in self.queued),
            in_flight=len(self.in_flight),
            in_flight_prefill_tokens=sum(
                t.prompt_tokens for t in self.in_flight if not t.has_begun
            ),
            oldest_wait_s=now_s - oldest_s,
            arrivals=self.arrivals,
            prompt_tokens=self.prompt_tokens,
            ended=self.ended,
            output_tokens=self.output_tokens,
            shed=self.shed,
            failed=self.failed,
            ttft_s=self.ttft_s.histogram(),
            tpot_s=self.tpot_s.histogram(),
        )


class Ticket:
    """One request's place in its account. came_s: on the monotonic clock."""

    def __init__(
        self, account: Account, came_s: float, body_bytes: int, *, is_stream: bool, is_chat: bool
    ) -> None:
        self._account = account
        self._body_bytes = body_bytes
        self._is_stream = is_stream
        self._count = AnswerCount(is_stream=is_stream, overhead=2 if is_chat else 1)
        self._was_sent = self._is_lost = False
        self._first_s = self._last_s = came_s
        self.has_begun = False
        self.came_s = came_s
        self.prompt_tokens = account.estimate_tokens(body_bytes)
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
    def sent(self) -> Iterator[None]:
        self._was_sent = True
        self._account.in_flight.add(self)
        try:
            yield
        finally:
            self._account.in_flight.discard(self)

    def answered(self, chunk: bytes) -> None:
        """More of the answer came from the engine."""
        self._last_s = monotonic()
        if not self.has_begun:
            self.has_begun, self._first_s = True, self._last_s
        self._count.feed(chunk)

    def lose(self) -> None:
        """The answer breaks off."""
        self._is_lost = True

    def close(self, status: int) -> None:
        """status: what the client was told. One that left, or asked wrongly, counts as neither."""
        account = self._account
        if self._is_lost or (status >= 500 and self._was_sent):
            account.failed += 1
        elif status >= 500:
            account.shed += 1
        elif status < 400 and self.has_begun:
            account.ended += 1
            account.output_tokens += self._count.output_tokens
            if self._count.prompt_tokens is not None:
                account.told(self._body_bytes, self._count.prompt_tokens)
            self._time()

    def _time(self) -> None:
        """Of streams alone: the first byte of a whole answer is its last."""
        if not self._is_stream:
            return
        self._account.ttft_s.add(self._first_s - self.came_s)
        gaps = self._count.output_tokens - 1
        if gaps > 0:
            self._account.tpot_s.add((self._last_s - self._first_s) / gaps)


class Accounts:
    """Of all services."""

    def __init__(self) -> None:
        self._started_s = wall()
        self._accounts: dict[str, Account] = {}

    def arrived(
        self, service: str, came_s: float, body_bytes: int, *, is_stream: bool, is_chat: bool
    ) -> Ticket:
        account = self._accounts.setdefault(service, Account())
        return Ticket(account, came_s, body_bytes, is_stream=is_stream, is_chat=is_chat)

    def feed(self, services: Iterable[str]) -> Feed:
        """services: all that are served now; the others are forgotten."""
        self._accounts = {key: self._accounts.get(key) or Account() for key in services}
        at_s, now_s = wall(), monotonic()
        readings = {key: a.reading(at_s, now_s) for key, a in self._accounts.items()}
        return Feed(VERSION, self._started_s, readings)
