"""The traffic generations that gateways report, over real sockets."""

import asyncio
from contextlib import asynccontextmanager

from penstock.clients.machine.clock import steady
from penstock.clients.pods import stats_report
from penstock.clients.pods.scrape import Scraper
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.scaling.gateway_pods import gateway_pods
from penstock.controller.scaling.observer import Observer
from penstock.core.formats.timestamps import parse_timestamp
from penstock.core.observed.gateway_report import VERSION, GatewayReport
from penstock.core.scaling.idle import GatewayDemand, SilentGateway

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


def without_clients(pod, since, *, hold=()):
    """The pod, which is not ready since then. hold: its arguments."""
    (container,) = pod["spec"]["containers"]
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    status = pod["status"] | {"conditions": [condition]}
    return pod | {"spec": {"containers": [container | {"args": list(hold)}]}, "status": status}


async def test_what_is_known_of_gateways_that_do_not_answer():
    """The clock shows ten minutes after midnight."""
    midnight_s = parse_timestamp("2026-01-01T00:00:00Z")
    async with (
        gateway("quiet", {}) as quiet,
        gateway("silent", None) as silent,
        gateway("dead", None, ready="False") as dead,
        gateway("old", None) as old,
    ):
        ending = silent | {
            "metadata": silent["metadata"]
            | {
                "name": "ending",
                "deletionTimestamp": "2026-01-01T00:10:10Z",
                "deletionGracePeriodSeconds": 30,
            }
        }
        told = without_clients(old, "2026-01-01T00:09:00Z", hold=("--hold-s", "900"))
        joined = without_clients(old, "2026-01-01T00:09:00Z", hold=("--port=1", "--hold-s=40"))
        joined = joined | {"metadata": joined["metadata"] | {"name": "joined"}}
        pods = [quiet, silent, dead, ending, told, joined]
        scraper = Scraper(lambda: midnight_s + 600.0)
        observer = Observer(scraper, lambda: pods, Failures(OperatorMetrics()))
        await observer.scrape([])
        assert observer.demand(KEY) == {
            "quiet": GatewayDemand(1.0, 0, 0),
            "silent": SilentGateway(None, 300.0),
            "dead": SilentGateway(600.0, 300.0),
            "ending": SilentGateway(20.0, 300.0),
            "old": SilentGateway(60.0, 900.0),
            "joined": SilentGateway(60.0, 40.0),
        }
        await scraper.close()


def test_a_gateway_with_an_unreadable_limit_has_the_default():
    body = {
        "metadata": {"name": "g", "uid": "g", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [
                {
                    "args": ["--hold-s", "$(HOLD)"],
                    "ports": [{"name": "management", "containerPort": 1}],
                }
            ]
        },
        "status": {"podIP": "127.0.0.1", "phase": "Running"},
    }
    (found,) = gateway_pods([body])
    assert found.hold_s == 300.0


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
