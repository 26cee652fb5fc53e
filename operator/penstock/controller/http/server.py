"""HTTP endpoints of the operator: liveness, readiness, metrics, recordings and placements."""

import asyncio
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from penstock.clients.machine.clock import monotonic
from penstock.clients.metrics.http_server import serving
from penstock.clients.metrics.page import MetricsPage
from penstock.controller.http import placements as adapters
from penstock.controller.http import recorder as recordings
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics

MAX_LAG_S = 20.0  # an event loop that has not run for this long is reported as stuck


class OperatorEndpoints:
    """Serves the endpoints of one operator. Standbys are ready too, as they can take over."""

    def __init__(self) -> None:
        self.metrics = OperatorMetrics()
        self.failures = Failures(self.metrics)
        self._beat_s = monotonic()
        self._page = MetricsPage(self.metrics.render)

    async def beat(self) -> None:
        """Record once a second that the event loop runs, until cancelled."""
        while True:
            self._beat_s = monotonic()
            await asyncio.sleep(1)

    def serve(
        self,
        host: str,
        port: int,
        recorder: recordings.Recorder,
        placements: adapters.Placements,
    ) -> AbstractAsyncContextManager[int]:
        """Serve the endpoints in the block of an `async with`, which yields the port."""
        routes = [
            Route("/healthz", self._healthz),
            Route("/readyz", self._healthz),
            Route("/metrics", self._metrics),
            Route(recordings.PATH, recorder.stream),
            Route(adapters.PATH, placements.get),
        ]
        app = Starlette(routes=routes)
        app.router.redirect_slashes = False
        return serving(app, host, port)

    def is_loop_running(self) -> bool:
        """Whether the event loop has run lately. Another thread may ask."""
        return monotonic() - self._beat_s < MAX_LAG_S

    async def _healthz(self, _: Request) -> Response:
        is_well = self.is_loop_running()
        return PlainTextResponse("ok" if is_well else "stuck", 200 if is_well else 503)

    async def _metrics(self, request: Request) -> Response:
        body, content_type = await self._page.get(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})
