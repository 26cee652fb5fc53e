"""A reserved slot on an endpoint; releasing its prefill work or all of it wakes the admission queue."""

import asyncio
from collections.abc import Callable

from penstock.core.admission.engine_load import Placement
from penstock.core.routing.pick import Endpoint


class Reservation:
    """A request's reserved slot on an endpoint.

    freed: called each time the endpoint may have room for another request. correct: called with the tokens
    of the ended request, if they are known.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        placement: Placement,
        freed: Callable[[], None],
        correct: Callable[[float], None],
    ) -> None:
        self.endpoint = endpoint
        self._placement = placement
        self._freed = freed
        self._correct = correct
        self._timer: asyncio.TimerHandle | None = None

    def assume_prefill_time(self) -> None:
        """Free the prefill work when it is predicted to end: only a stream shows when it does."""
        if self._placement.expected_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._placement.expected_s, self._free_prefill)
        else:
            self._free_prefill()

    def first_token_received(self, now: float) -> None:
        """Free the prefill work, and learn the endpoint's prefill throughput from its duration.

        now: when the first event of a stream arrived that is no error, on the monotonic clock.
        """
        self._placement.first_token(now)
        self._freed()

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
        self._placement.release()
        self._freed()

    def _free_prefill(self) -> None:
        self._placement.computed()
        self._freed()
