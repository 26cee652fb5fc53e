"""Real sockets on both sides: engines that misbehave on demand, and a gateway in front of them."""

import asyncio
import contextlib
import gc
import json
import selectors
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.engine_answers import CHUNKS, LAST_EVENTS
from tests.support.sources.certificates import AUTHORITY, CERTIFICATE, KEY, loopback_certificate

from penstock.clients.machine.clock import monotonic
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.spec.objectives import Objectives
from penstock.gateway.app import Gateway
from penstock.gateway.http.certificate import ServedCertificate
from penstock.gateway.http.protocol import GatewayProtocol
from penstock.gateway.http.servers import Server
from penstock.gateway.quotas.store import Store
from penstock.gateway.server import run
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshots.snapshot import Service, Snapshot
from penstock.gateway.snapshots.store import SnapshotStore
from penstock.gateway.tenants.token_reviews import Review, no_review
from penstock.gateway.upstream.upstream import Upstream

WHOLE = b'{"choices": [{"text": "all of it"}]}'


@dataclass
class Request:
    """A request that an engine received, with the socket to answer on."""

    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    method: str = "POST"

    @property
    def is_stream(self) -> bool:
        return bool(json.loads(self.body).get("stream"))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, content_type: str = "text/event-stream", status: str = "200 OK") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        await self.send(head.encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def whole(self, body: bytes, status: str = "200 OK", extra: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{extra}"
        await self.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    def reset(self) -> None:
        """A TCP reset, as from a process that was killed."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behavior = Callable[[Request], Awaitable[None]]


async def answer(request: Request) -> None:
    """Answer as a healthy engine does."""
    if not request.is_stream:
        await request.whole(WHOLE)
        return
    await request.head()
    for chunk in CHUNKS:
        await request.chunk(chunk)
    await request.chunk(LAST_EVENTS[request.path.partition("?")[0]])
    await request.end()


@dataclass
class Engine:
    """A fake engine: an HTTP server that handles each request with `behavior`."""

    name: str
    revision: str
    behavior: Behavior
    requests: list[Request] = field(default_factory=list)
    active: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client hung up on a request
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def endpoint(self) -> Endpoint:
        return Endpoint(f"default/{self.name}", f"127.0.0.1:{self.port}", self.revision)

    async def stop(self) -> None:
        """Close all connections and refuse new ones."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        length = int(headers.get("content-length", "0"))
        method, path, _ = first.split()
        request = Request(path, headers, await reader.readexactly(length), writer, method)
        self.requests.append(request)
        self.active += 1
        self.arrived.set()
        work = asyncio.ensure_future(self.behavior(request))
        hangup = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, hangup}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() or isinstance(work.exception(), ConnectionError):
                self.left.set()
                return False
            work.result()
            return not writer.is_closing()
        finally:
            self.active -= 1
            for each in (work, hangup):
                each.cancel()
            await asyncio.gather(work, hangup, return_exceptions=True)


@dataclass
class Front:
    """A gateway under test, and a client of it."""

    url: str
    management_url: str
    port: int
    gateway: Gateway
    snapshots: SnapshotStore
    client: aiohttp.ClientSession
    stop: asyncio.Event
    task: asyncio.Task[None]
    server: Server
    management: Server

    @property
    def num_connections(self) -> int:
        """Number of client connections that the gateway has open."""
        return len(self.server.server_state.connections)

    def gateway_connections(self) -> list[GatewayProtocol]:
        """Connections of clients, without those in a TLS handshake."""
        found = self.server.server_state.connections
        return [each for each in found if isinstance(each, GatewayProtocol)]

    def publish(self, *services: Service) -> None:
        self.snapshots.publish(Snapshot(services))

    def post(
        self,
        path: str = "/v1/chat/completions",
        *,
        stream: bool = True,
        model: str = "chat",
        **more: Any,
    ) -> Any:
        return self.client.post(self.url + path, json={"model": model, "stream": stream} | more)

    async def ask(self, path: str = "/v1/chat/completions", **fields: Any) -> tuple[int, bytes]:
        async with self.post(path, **fields) as got:
            return got.status, await got.read()

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        async with self.client.get(self.management_url + "/metrics") as got:
            text = await got.text()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    async def idle(self) -> None:
        """Wait until nothing is in flight by any counter."""
        state = self.gateway.state
        await until(
            lambda: (
                not (
                    state.cancel_scopes
                    or state.endpoints.tokens
                    or state.waiting
                    or state.retry_budget.in_flight
                )
            )
        )

    async def idle_with_copies(self) -> None:
        """Wait until nothing is in flight, nor any copy for a mirror."""
        await self.idle()
        await until(lambda: not self.gateway.state.mirror.num_open)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is looked at has no events
            await asyncio.sleep(0.002)


class JumpingSelector(selectors.SelectSelector):
    """A selector that never blocks: it passes the time that it would wait to `jump`."""

    jump: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout != 0:
            assert timeout is not None, "nothing would ever happen again"
            self.jump(timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time: when nothing is ready, the clock jumps to the next timer."""

    def __init__(self) -> None:
        selector = JumpingSelector()
        super().__init__(selector)
        self.now_s = 1000.0
        selector.jump = self._jump

    def time(self) -> float:
        return self.now_s

    def _jump(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def run_virtually() -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Run a coroutine function to its end on a VirtualLoop."""

    def run_on_loop(main: Callable[[], Awaitable[None]]) -> None:
        async def main_coroutine() -> None:
            await main()

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(main_coroutine())

    return run_on_loop


def full_listener() -> tuple[str, list[socket.socket]]:
    """The address of a listener whose queue is full, so that connecting to it hangs."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    host, port = listener.getsockname()
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex((host, port))
    return f"{host}:{port}", [listener, *fillers]


@pytest.fixture(autouse=True)
async def no_unseen_errors() -> AsyncIterator[None]:
    """Fail a test in which a callback raises, or a task fails whose result is not awaited."""
    unseen: list[str] = []

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        unseen.append(f"{context['message']}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(note)
    yield
    await asyncio.sleep(0)
    gc.collect()  # a task in a cycle tells when it is freed
    gc.freeze()  # what lives on is not looked at again after each test
    assert not unseen


@pytest.fixture(autouse=True)
def fresh_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each scrape have the values of its time."""
    monkeypatch.setattr("penstock.clients.metrics.page.MAX_AGE_S", 0.0)


@pytest.fixture(name="until")
def until_fixture() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    return until


@pytest.fixture
def stuck_address() -> Iterator[str]:
    address, sockets = full_listener()
    yield address
    for each in sockets:
        each.close()


def service(
    *engines: Engine,
    name: str = "chat",
    namespace: str = "default",
    weights: Mapping[str, int] | None = None,
    served_name: str | None = None,
    created_s: int = 0,
    objectives: Objectives | None = None,
) -> Service:
    return Service(
        namespace=namespace,
        name=name,
        served_name=served_name or name,
        created_s=created_s,
        weights={Side(revision): weight for revision, weight in (weights or {"r1": 100}).items()},
        endpoints=tuple(engine.endpoint() for engine in engines),
        objectives=objectives,
        sides={f"default/{engine.name}": Side(engine.revision) for engine in engines},
    )


@pytest.fixture
def make_service() -> Callable[..., Service]:
    return service


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
