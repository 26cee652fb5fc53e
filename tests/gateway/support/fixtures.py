"""Fixtures that start fake engines, and gateways in front of them."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from tests.gateway.support.engine_stub import Behavior, Engine, answer
from tests.gateway.support.front import Front, until
from tests.gateway.support.services import service
from tests.support.sources.certificates import AUTHORITY, CERTIFICATE, KEY, loopback_certificate

from penstock.clients.machine.clock import monotonic
from penstock.gateway.app import Gateway
from penstock.gateway.http.certificate import ServedCertificate
from penstock.gateway.quotas.store import Store
from penstock.gateway.server import run
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.tenants.token_reviews import Review, no_review
from penstock.gateway.upstream.upstream import Upstream


@pytest.fixture
async def start_engine() -> AsyncIterator[Callable[..., Awaitable[Engine]]]:
    engines: list[Engine] = []

    async def start(behavior: Behavior = answer, revision: str = "r1") -> Engine:
        engine = Engine(f"engine-{len(engines)}", revision, behavior)
        engines.append(engine)
        await engine.start()
        return engine

    yield start
    for engine in engines:
        await engine.stop()


@pytest.fixture(params=["plain", "tls"])
def plain_or_tls(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Path]:
    """Arguments of `start_gateway`, once without and once with TLS."""
    if request.param == "plain":
        return {}
    loopback_certificate(tmp_path)
    return {"tls": tmp_path}


@pytest.fixture
def quick_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers end at once: every tenth of a second uvicorn looks whether to end, and pauses as long."""

    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(min(delay_s, 0.01))

    monkeypatch.setattr(
        "uvicorn.server.asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep})
    )


@pytest.fixture
async def start_gateway(quick_servers: None) -> AsyncIterator[Callable[..., Awaitable[Front]]]:
    """`await start_gateway(engine, …, setting=…)`; engines of one service called chat.

    now: its clock. tls: a folder of `loopback_certificate`, with which it and its client then use TLS.
    review: answers its TokenReviews. quota_store: of limits that it shares.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            *engines: Engine,
            synced: bool = True,
            now: Callable[[], float] = monotonic,
            tracer: Any = None,
            tls: Path | None = None,
            review: Review = no_review,
            quota_store: Store | None = None,
            **settings: Any,
        ) -> Front:
            chosen = GatewaySettings(
                host="127.0.0.1",
                port=0,
                management_port=0,
                **{"drain_delay_s": 0.0, "drain_timeout_s": 0.0, "wait_for_endpoint_s": 10.0}
                | settings,
            )
            snapshots = SnapshotStore()
            upstream = await stack.enter_async_context(Upstream(chosen))
            gateway = Gateway(snapshots, upstream, chosen, now, tracer, review, quota_store)
            gateway.state.authenticator.tenants.publish((), is_open=True)
            certificate = None if tls is None else ServedCertificate(tls / CERTIFICATE, tls / KEY)
            servers, stop = gateway.http_servers(certificate), asyncio.Event()
            task = asyncio.create_task(run(gateway, stop, servers))
            await until(lambda: servers.clients.started and servers.management.started)
            trusted = True if tls is None else ssl.create_default_context(cafile=tls / AUTHORITY)
            connector = aiohttp.TCPConnector(ssl=trusted)
            client = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))

            async def end() -> None:
                await client.close()
                stop.set()
                await task

            stack.push_async_callback(end)
            port, management_port = servers.clients.port, servers.management.port
            scheme = "http" if tls is None else "https"
            front = Front(
                f"{scheme}://127.0.0.1:{port}", f"http://127.0.0.1:{management_port}", port, gateway,
                snapshots, client, stop, task, servers.clients, servers.management,
            )  # fmt: skip
            if synced:
                front.publish(*([service(*engines)] if engines else []))
            return front

        yield start
