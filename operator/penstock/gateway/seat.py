"""A reserved slot at an engine; when its prefill or the request ends, the admission queue goes on."""

import asyncio
from collections.abc import Callable

from penstock.core.routing.engine_load import Place
from penstock.core.routing.pick import Endpoint


class Seat:
    """A request's reserved slot at an engine. freed: called when the engine may have more room."""

    def __init__(self, endpoint: Endpoint, place: Place, freed: Callable[[], None]) -> None:
        self.endpoint = endpoint
        self._place = place
        self._freed = freed
        self._timer: asyncio.TimerHandle | None = None

    def presume(self) -> None:
        """Assume that prefill ends when expected: only a stream shows when it does."""
        if self._place.expected_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._place.expected_s, self._computed)
        else:
            self._computed()

    def began(self, now: float) -> None:
        """End the prefill: the first event of a stream arrived, and it is no error."""
        self._place.began(now)
        self._freed()

    def left(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._place.left()
        self._freed()

    def _computed(self) -> None:
        self._place.computed()
        self._freed()
