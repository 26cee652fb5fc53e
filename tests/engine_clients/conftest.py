"""Fixtures: an engine alone, and one behind a gateway with tenants, for real client libraries."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.engine_server import launched_engine
from tests.support.gateway_callers import api_key, let_in, tenant
from tests.support.running_gateway import running_gateway

from penstock.core.routing.pick import Endpoint, Side
from penstock.core.tenants.tenant import Access, RequestLimits, UsageLimit
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Service, Snapshot

model_dir = launched_engine.model_dir
launch = launched_engine.launch
FLAGS = (
    "--max-model-len", "1024", "--max-num-seqs", "8", "--enable-auto-tool-choice",
    "--tool-call-parser", "hermes", "--scheduling-policy", "priority",
)  # fmt: skip
# Generous limits, so that every request is counted against some.
TOUR = tenant(
    "tour",
    Access("default"),
    limits=(
        UsageLimit("requests", "Requests", 10_000, "Minute"),
        UsageLimit("tokens", "Tokens", 10_000_000, "Minute"),
    ),
    request=RequestLimits(prompt_tokens=1000, output_tokens=1000),
    max_running=100,
)
START_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Server:
    """Something that clients talk to. url: without a path."""

    url: str
    key: str


@pytest.fixture(scope="session")
def engine(launch: Any) -> Server:
    client, _ = launch(*FLAGS, "--api-key", "s3cret")
    return Server(str(client.base_url).rstrip("/"), "s3cret")


@pytest.fixture(scope="session")
def gateway(launch: Any) -> Iterator[Server]:
    """A gateway with a tenant, in front of an engine without a key, as it passes none on."""
    client, _ = launch(*FLAGS)
    address = f"127.0.0.1:{client.base_url.port}"
    endpoint = Endpoint("default/soup-0", address, "r1")
    service = Service("default", "soup", "soup", 0, {Side("r1"): 100}, (endpoint,))
    with gateway_thread(service) as url:
        yield Server(url, api_key(1).text)


@pytest.fixture(scope="session", params=["engine", "gateway"])
def server(request: pytest.FixtureRequest) -> Server:
    """The engine, and the gateway: whatever clients do has to go well with both."""
    found: Server = request.getfixturevalue(request.param)
    return found


@contextmanager
def gateway_thread(service: Service) -> Iterator[str]:
    """Run a gateway in a thread, as clients here block theirs. Yields its URL."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()

    async def serve() -> None:
        stop = asyncio.Event()
        settings = GatewaySettings(
            host="127.0.0.1", port=0, management_port=0, drain_delay_s=0.0, drain_timeout_s=0.0
        )
        async with running_gateway(Snapshot((service,)), settings) as (gateway, servers):
            let_in(gateway, TOUR, keys={"tour": api_key(1)})
            started.set_result((asyncio.get_running_loop(), stop, servers.clients.port))
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop, stop, port = started.result(START_TIMEOUT_S)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
