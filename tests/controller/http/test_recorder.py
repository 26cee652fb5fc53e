"""Streams of decisions: directly from the operator, and relayed by the API server."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from starlette.requests import Request
from tests.controller.http.leading_pod import lead, outer_address

from penstock.clients.kubernetes.client import Kube
from penstock.clients.kubernetes.leader import recording
from penstock.clients.kubernetes.resources import LEASES
from penstock.controller.http.placements import Placements
from penstock.controller.http.recorder import MAX_BEHIND, MAX_STREAMS, Recorder
from penstock.controller.http.server import OperatorEndpoints
from penstock.core.scaling.by_objectives.rule import ObjectivesRule
from penstock.core.scaling.by_objectives.tick import Settings, Tick
from penstock.core.scaling.learned.priors import prior
from penstock.core.scaling.recording import Recording
from penstock.core.scaling.rule import Bounds
from penstock.core.scaling.signals import Observation
from penstock.core.spec.objectives import Objectives
from penstock.errors import KubeError, Transient

KEY = ("default", "chat")


def ticks(count: int) -> list[Tick]:
    """Make ticks of a service without engines, with random queue lengths so that decisions differ."""
    draw, made = random.Random(1), []
    settings = Settings(ObjectivesRule(prior(None)), Objectives(2.0, 0.1), Bounds(1, 9), 512)
    state = settings.rule.initial()
    for number in range(count):
        seen = Observation(100.0 + 2 * number, (), draw.randint(0, 12), None)
        decision, after = settings.rule.decide(settings.objectives, settings.bounds, seen, state)
        made.append(Tick(settings, state, seen, decision))
        state = after
    return made


class Operator:
    """The operator's HTTP endpoints with a recorder."""

    port: int

    def __init__(self) -> None:
        self.recorder = Recorder()

    @asynccontextmanager
    async def serve(self, host: str) -> AsyncIterator[None]:
        async with OperatorEndpoints().serve(host, 0, self.recorder, Placements()) as self.port:
            yield

    @property
    def listeners(self) -> int:
        return sum(map(len, self.recorder._listeners.values()))

    async def until_listeners(self, number: int) -> None:
        async with asyncio.timeout(10):
            while self.listeners != number:  # noqa: ASYNC110 - it has no events
                await asyncio.sleep(0.01)

    async def publish(self, made: list[Tick]) -> None:
        """Publish the ticks as soon as there is a listener."""
        async with asyncio.timeout(10):
            while not self.recorder._listeners.get(KEY):  # noqa: ASYNC110 - it has no events
                await asyncio.sleep(0.01)
        for tick in made:
            self.recorder.publish(KEY, tick)
            await asyncio.sleep(0)


@pytest.fixture
async def operator() -> AsyncIterator[Operator]:
    made = Operator()
    async with made.serve("127.0.0.1"):
        yield made


async def read(lines: Any, count: int) -> Recording:
    text: list[str] = []
    async for line in lines:
        text.append(line.decode())
        if len(text) == count:
            break
    return Recording.read(text)


async def test_a_stream_replays(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    made = ticks(10)
    publishing = asyncio.create_task(operator.publish(made))
    url = f"http://127.0.0.1:{operator.port}/recording/default/chat"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        found = await read(answer.content, 11)
    await publishing
    assert found.header.service == "default/chat"
    assert [decision for _, decision in found.replay()] == [tick.decision for tick in made]
    async with asyncio.timeout(5):  # a closed stream is dropped with the next decision
        while operator.listeners:
            operator.recorder.publish(KEY, made[0])
            await asyncio.sleep(0.01)
    assert caplog.records == []  # a client that disconnects is no error


async def test_a_service_without_decisions_is_not_found(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.controller.http.recorder.FIRST_TICK_S", 0.01)
    url = f"http://127.0.0.1:{operator.port}/recording/default/other"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 404
        assert "Active or DryRun" in await answer.text()


async def test_a_slow_listener_is_disconnected_without_a_gap(operator: Operator) -> None:
    made = ticks(MAX_BEHIND + 5)
    with operator.recorder._listen(KEY) as queue:
        for tick in made:
            operator.recorder.publish(KEY, tick)
        got = [queue.get_nowait() for _ in range(queue.qsize())]
    assert got == [*made[:MAX_BEHIND], None]
    assert operator.listeners == 0


@pytest.fixture
async def listen(operator: Operator) -> AsyncIterator[Any]:
    """`await listen("namespace/name")`: asks for a recording, and returns what closes the connection."""
    async with AsyncExitStack() as stack:

        async def begin(service: str) -> Any:
            before = operator.listeners
            _, writer = await asyncio.open_connection("127.0.0.1", operator.port)
            stack.callback(writer.close)
            writer.write(f"GET /recording/{service} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            await operator.until_listeners(before + 1)
            return writer.close

        yield begin


async def test_listeners_of_one_namespace_leave_streams_to_others(
    operator: Operator, listen: Any
) -> None:
    """The services need not exist."""
    for number in range(MAX_STREAMS // 2):
        await listen(f"other/none-{number}")
    url = f"http://127.0.0.1:{operator.port}/recording"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/other/chat") as answer:
            assert answer.status == 503
            text = await answer.text()
        assert text == "too many recordings of namespace other, or of all, are in progress"
        asking = asyncio.create_task(session.get(f"{url}/default/chat"))
        await operator.until_listeners(MAX_STREAMS // 2 + 1)
        await operator.publish(ticks(1))
        async with await asking as answer:
            assert answer.status == 200


async def test_client_that_leaves_before_the_first_decision_ends_its_stream(
    operator: Operator, listen: Any
) -> None:
    close = await listen("default/none")
    close()
    await operator.until_listeners(0)


async def test_recordings_end_with_the_operator_without_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first recording waits for its first decision, the second one for its next."""
    monkeypatch.setattr("penstock.clients.metrics.http_server.LAST_ANSWERS_S", 0.1)
    operator = Operator()
    async with aiohttp.ClientSession() as session:
        async with operator.serve("127.0.0.1"):
            url = f"http://127.0.0.1:{operator.port}/recording/default"
            streaming = asyncio.create_task(session.get(f"{url}/chat"))
            await operator.publish(ticks(1))
            answer = await streaming
            waiting = asyncio.create_task(session.get(f"{url}/none"))
            await operator.until_listeners(2)
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
        with pytest.raises(aiohttp.ClientError):
            await waiting
    assert operator.listeners == 0
    assert caplog.records == []


async def test_streams_that_are_not_read_count_until_they_end() -> None:
    recorder = Recorder()
    scope = {"type": "http", "path_params": {"namespace": "default", "name": "chat"}}
    made, is_over = ticks(1), asyncio.Event()

    async def receive() -> Any:
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        await asyncio.Event().wait()

    async def stream() -> None:
        await (await recorder.stream(Request(scope, receive)))(scope, receive, send)

    streams = [asyncio.create_task(stream()) for _ in range(MAX_STREAMS // 2)]
    await asyncio.sleep(0)
    for tick in made * (MAX_BEHIND + 2):  # more than a stream may be behind
        recorder.publish(KEY, tick)
        await asyncio.sleep(0)
    assert (await recorder.stream(Request(scope, receive))).status_code == 503
    is_over.set()
    await asyncio.gather(*streams)
    is_over.clear()
    answering = asyncio.create_task(recorder.stream(Request(scope, receive)))
    await asyncio.sleep(0)
    recorder.publish(KEY, made[0])
    assert (await answering).status_code == 200


@pytest.mark.cluster
@pytest.mark.parametrize("is_relayed", [False, True], ids=["direct", "relayed"])
async def test_a_command_finds_the_leader(kube: Kube, namespace: str, is_relayed: bool) -> None:
    address = outer_address() if is_relayed else "127.0.0.1"
    if address is None:
        pytest.skip("this machine has no address but loopback ones")
    operator = Operator()
    async with operator.serve(address):
        await lead(kube, namespace, address, operator.port)
        made = ticks(5)
        publishing = asyncio.create_task(operator.publish(made))
        lines = recording(kube, namespace, "lease", "default/chat", timeout_s=20)
        found = await read(lines, 6)
        await lines.aclose()
        await publishing
        assert [line.decision for line in found.lines] == [tick.decision for tick in made]


@pytest.mark.cluster
async def test_a_stream_without_a_reachable_leader_fails(kube: Kube, namespace: str) -> None:
    lines = recording(kube, namespace, "lease", "default/chat", timeout_s=5)
    with pytest.raises(KubeError, match="no operator leads"):
        await anext(lines)
    await lead(kube, namespace, "127.0.0.1", 1)
    released = {"spec": {"holderIdentity": ""}}
    await kube.merge(LEASES, namespace, "lease", released, manager="test")
    lines = recording(kube, namespace, "lease", "default/chat", timeout_s=5)
    with pytest.raises(KubeError, match="nobody holds the Lease"):
        await anext(lines)
    held = {"spec": {"holderIdentity": "op-123"}}
    await kube.merge(LEASES, namespace, "lease", held, manager="test")
    lines = recording(kube, namespace, "lease", "default/chat", timeout_s=5)
    with pytest.raises(Transient, match="cannot be reached"):
        await anext(lines)
