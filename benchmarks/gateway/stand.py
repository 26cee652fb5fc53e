"""A gateway over real sockets, and one with engines that misbehave by the model's name."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from aiohttp import web
from tests.support.http_server import served
from tests.support.running_gateway import running_gateway

from penstock.core.adapters.adapter import AdapterVersion
from penstock.core.observed.lora_engine import LoraEngine
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.route import Mirror, RouteRule
from penstock.gateway.app import Gateway
from penstock.gateway.http.servers import HttpServers
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.adapter import Adapter
from penstock.gateway.snapshots.snapshot import Route, Service, Snapshot

PATH = "/v1/completions"
# Defaults of the gateway, on free ports.
DEFAULTS = GatewaySettings(host="127.0.0.1", port=0, management_port=0)
# Settings of a gateway that stops at once.
SETTINGS = replace(DEFAULTS, drain_delay_s=0.0, drain_timeout_s=0.0, access_log=False)
# More than the kernel's buffers hold of an answer that is not read.
UNREAD_ANSWER_BYTES = 512 << 10
# Models that are only listed, so that the kernel does not hold their list either.
NUM_LISTED = 5000
STREAM_CHUNK = b"data: " + b"x" * 65_000 + b"\n\n"
END = web.AppKey("END", asyncio.Event)


@dataclass
class Stand:
    """A gateway with its engines, and a client of it."""

    settings: GatewaySettings
    servers: HttpServers
    gateway: Gateway
    session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.servers.clients.port}"

    async def ask(self, model: str, padding: int = 10) -> int:
        """Send a request and read the answer. Returns its status; 0 if the connection broke."""
        body = {"model": model, "padding": "x" * padding}
        try:
            async with self.session.post(self.url + PATH, json=body) as got:
                await got.read()
                return got.status
        except aiohttp.ClientError:
            return 0

    def num_refused(self) -> int:
        """Number of requests that the gateway refused, and of copies that it dropped."""
        metrics = self.gateway.state.metrics
        families = [*metrics.rejections.collect(), *metrics.mirrored_requests.collect()]
        return sum(
            int(sample.value)
            for family in families
            for sample in family.samples
            if sample.name.endswith("_total")
            and sample.labels.get("outcome", "dropped") == "dropped"
        )

    async def probe(self, path: str) -> bool:
        """Whether the management port answers a probe with 200."""
        url = f"http://127.0.0.1:{self.servers.management.port}{path}"
        async with self.session.get(url) as got:
            await got.read()
            return got.status == 200


async def _answer(request: web.Request) -> web.StreamResponse:
    """An engine's answer. The model's name says how it behaves."""
    model = (await request.json())["model"]
    if model.startswith("hangs"):
        await request.app[END].wait()
    if model == "floods":
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(STREAM_CHUNK)
        return response
    if model == "whole":
        return web.Response(body=b" " * UNREAD_ANSWER_BYTES)
    if model.startswith("large"):
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            await response.write(b" " * (7 << 20))
        await request.app[END].wait()
    return web.json_response({"choices": []})


async def _list_adapters(_: web.Request) -> web.Response:
    return web.json_response({"data": []})


async def _load_adapter(request: web.Request) -> web.Response:
    await request.app[END].wait()
    return web.Response()


@contextlib.asynccontextmanager
async def _engine() -> AsyncIterator[str]:
    app = web.Application(client_max_size=8 << 20)
    app[END] = asyncio.Event()
    app.router.add_post(PATH, _answer)
    app.router.add_get("/v1/adapters", _list_adapters)
    app.router.add_post("/v1/load_lora_adapter", _load_adapter)
    async with served(app) as address:
        yield address
        app[END].set()


def reset_connection(request: web.Request) -> web.Response:
    """Reset the connection of a request, in place of an answer."""
    if request.transport is not None:
        raw = request.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return web.Response()


def chat_service(*endpoints: Endpoint, **fields: Any) -> Service:
    """The service `chat` with an equal share for each revision of its endpoints."""
    revisions = {endpoint.revision: None for endpoint in endpoints} or {"r1": None}
    weights = {Side(revision): 100 // len(revisions) for revision in revisions}
    return Service("default", "chat", "chat", 0, weights, endpoints, **fields)


def _snapshot(address: str) -> Snapshot:
    """The services of one party, and the service of others, `chat`, with an adapter."""

    def service(name: str, *, namespace: str = "party", is_ready: bool = True) -> Service:
        endpoint = Endpoint(f"{namespace}/{name}-0", address, "r1")
        return Service(namespace, name, name, 0, {Side("r1"): 100}, (endpoint,) if is_ready else ())

    models = ("answers", "hangs", "hangs-too", "floods", "large", "large-too", "whole")
    services = [service(name) for name in models]
    services += [service(name, is_ready=False) for name in ("empty", "empty-too")]
    rule = RouteRule((), (("answers", 1),), mirrors=(Mirror("hangs", None, 100),))
    engine = {"others/chat-0": LoraEngine("Penstock", 1)}
    chat = replace(service("chat", namespace="others"), lora_engines=engine)
    version = AdapterVersion("adapter", "pvc://adapters/adapter")
    listed = (f"listed-{number}" for number in range(NUM_LISTED))
    return Snapshot(
        (chat, *services),
        tuple(Route("party", name, name, 0, (rule,)) for name in ("copied", *listed)),
        (Adapter("others", "adapter", "adapter", 0, "others/chat", version),),
    )


@contextlib.asynccontextmanager
async def gateway_stand(settings: GatewaySettings) -> AsyncIterator[Stand]:
    """Run a gateway with engines that misbehave by the model's name."""
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        _engine() as address,
        running_gateway(_snapshot(address), settings) as (gateway, servers),
        aiohttp.ClientSession(connector=connector) as session,
    ):
        yield Stand(settings, servers, gateway, session)
