"""The slot of a request on an endpoint; freeing its prefill work or all of it wakes the admission queue."""

import asyncio
from collections.abc import Callable

from penstock.core.admission.engines import Engines
from penstock.core.admission.placement import Placement
from penstock.core.routing.pick import Endpoint


class Reservation:
    """A request's slot on an endpoint.

    engines: that the endpoint is one of. now: the monotonic clock. freed: called each time the endpoint may
    have room for another request. correct: called with the tokens of the ended request, if they are known.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        placement: Placement,
        engines: Engines,
        now: Callable[[], float],
        freed: Callable[[], None] = lambda: None,
        correct: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.endpoint = endpoint
        self._placement = placement
        self._engines = engines
        self._now = now
        self._freed = freed
        self._correct = correct
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expected_s(self) -> float:
        """Predicted seconds from sending to the first token; 0: nothing is known of the engine."""
        return self._placement.expected_s

    def assume_prefill_time(self) -> None:
        """Free the prefill work when it is predicted to end: only a stream shows when it does."""
        if self._placement.expected_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._placement.expected_s, self._free_prefill)
        else:
            self._free_prefill()

    def first_token_received(self, now: float) -> None:
        """Free the prefill work, and learn the times of the engine from its duration.

        now: when the first event of a stream arrived that is no error, on the monotonic clock.
        """
        self._placement.first_token(now)
        self._freed()

    def note_cached(self, prompt_tokens: int, cached_tokens: int | None) -> None:
        """Learn how much of the prompt the engine had cached. cached_tokens: None: it has not said so."""
        self._engines.note_cached(self._placement, prompt_tokens, cached_tokens)

    def end(self, tokens: float, time_share: float | None = None) -> None:
        """Free the whole slot, and charge the tenant for the tokens of prompt and response. Call it once.

        time_share: time of the engine's answer, as a part of what the objectives allow; None: it had none.
        """
        self._correct(tokens)
        if time_share is not None:
            self._placement.answered(time_share)
        self.release()

    def release(self) -> None:
        """Free the whole slot. Further calls change nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._placement.release(self._now())
        self._freed()

    def _free_prefill(self) -> None:
        self._placement.computed(self._now())
        self._freed()
