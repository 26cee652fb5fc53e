"""HTTP endpoints of the operator: liveness, readiness, metrics, recordings and placements."""

import asyncio

from aiohttp import web

from penstock.clients.clock import monotonic
from penstock.clients.metrics_page import MetricsPage
from penstock.controller import placements as adapters
from penstock.controller import recorder as recordings
from penstock.controller.failures import Failures
from penstock.controller.metrics import OperatorMetrics

MAX_LAG_S = 20.0  # an event loop that has not run for this long is reported as stuck


class Health:
    """Serves health, readiness and metrics. Standbys are ready too, as they can take over."""

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

    async def serve(
        self,
        host: str,
        port: int,
        recorder: recordings.Recorder,
        placements: adapters.Placements,
    ) -> web.AppRunner:
        """Start the HTTP server. The caller ends it with `cleanup`."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._healthz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get(recordings.PATH, recorder.stream)
        app.router.add_get(adapters.PATH, placements.get)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        return runner

    def is_loop_running(self) -> bool:
        """Whether the event loop has run lately. Another thread may ask."""
        return monotonic() - self._beat_s < MAX_LAG_S

    async def _healthz(self, _: web.Request) -> web.Response:
        is_well = self.is_loop_running()
        return web.Response(text="ok" if is_well else "stuck", status=200 if is_well else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._page.get(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})
