"""The page of a process's metrics, which costs the same however often it is read."""

import asyncio
from collections.abc import Callable

from penstock.clients.machine.clock import monotonic
from penstock_engine.telemetry.exposition import OPENMETRICS

# A page is answered with again for this long, in seconds: far less than the usual 15 s between scrapes.
MAX_AGE_S = 1.0

# Text and content type.
Page = tuple[bytes, str]


class MetricsPage:
    """Renders metrics in a thread, and answers all who ask meanwhile and shortly after with one page.

    render: called in the thread with the header Accept. With many services it takes a second. prepare:
    called on the event loop before each rendering.
    """

    def __init__(
        self, render: Callable[[str], Page], prepare: Callable[[], None] = lambda: None
    ) -> None:
        self._render = render
        self._prepare = prepare
        self._pages: dict[bool, asyncio.Task[Page]] = {}
        self._expiry_s: dict[bool, float] = {}

    async def get(self, accept: str) -> Page:
        """Return the page in the format that the header Accept asks for."""
        is_openmetrics = OPENMETRICS in accept
        page = self._pages.get(is_openmetrics)
        if page is None or (page.done() and monotonic() >= self._expiry_s.get(is_openmetrics, 0)):
            page = asyncio.create_task(self._make(is_openmetrics))
            self._pages[is_openmetrics] = page
        return await asyncio.shield(page)  # one who disconnects takes it from nobody

    async def _make(self, is_openmetrics: bool) -> Page:
        self._prepare()
        page = await asyncio.to_thread(self._render, OPENMETRICS if is_openmetrics else "")
        self._expiry_s[is_openmetrics] = monotonic() + MAX_AGE_S
        return page
