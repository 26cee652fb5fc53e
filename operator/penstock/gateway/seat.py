"""A request's place at an engine: the line moves on when it needs less of it."""

import asyncio
from collections.abc import Callable

from penstock.core.engine_load import Place
from penstock.core.routing import Endpoint


class Seat:
    """freed: called when the engine may have more room."""

    def __init__(self, endpoint: Endpoint, place: Place, freed: Callable[[], None]) -> None:
        self.endpoint = endpoint
        self._place = place
        self._freed = freed
        self._timer: asyncio.TimerHandle | None = None

    def presume(self) -> None:
        """Of an answer whose first token cannot be seen, as it comes whole: it comes when expected."""
        if self._place.expected_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._place.expected_s, self._computed)
        else:
            self._computed()

    def began(self, now: float) -> None:
        """The first event of a stream came, and it is no error."""
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
