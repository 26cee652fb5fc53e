"""The traffic generations that gateways report, over real sockets."""

import asyncio
from contextlib import asynccontextmanager

from penstock.clients.machine.clock import steady
from penstock.clients.pods import stats_report
from penstock.clients.pods.scrape import Scraper
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.scaling.observer import Observer
from penstock.core.observed.gateway_report import VERSION, GatewayReport

KEY = ("default", "chat")


@asynccontextmanager
async def gateway(name, obeys, *, ready="True"):
    """Serve this feed and yield the gateway's pod; with `obeys` None the answer is not a feed."""
    body = (
        b"down"
        if obeys is None
        else stats_report.encode(GatewayReport(VERSION, 1.0, {}, obeys=obeys))
    )

    async def connected(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield {
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"ports": [{"name": "management", "containerPort": port}]}]},
            "status": {
                "podIP": "127.0.0.1",
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }


async def test_traffic_generations_by_gateway():
    """An unready gateway counts if it answers; one that does not know the service does not count."""
    async with (
        gateway("ahead", {"default/chat": 4}) as ahead,
        gateway("ending", {"default/chat": 3}, ready="False") as ending,
        gateway("elsewhere", {"other/chat": 9}) as elsewhere,
        gateway("silent", None) as silent,
        gateway("dead", None, ready="False") as dead,
    ):
        pods = None
        scraper = Scraper(steady)
        observer = Observer(scraper, lambda: pods, Failures(OperatorMetrics()))
        await observer.scrape([])
        assert observer.applied_generations(KEY) is None
        pods = [ahead, ending, elsewhere, silent, dead]
        await observer.scrape([])
        assert observer.applied_generations(KEY) == {"ahead": 4, "ending": 3, "silent": None}
        pods = []
        await observer.scrape([])
        assert observer.applied_generations(KEY) == {}
        await scraper.close()
