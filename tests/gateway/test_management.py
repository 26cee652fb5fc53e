"""The management port: probes, metrics and the stats report, apart from the connections of clients."""

import asyncio
import contextlib

import pytest

from penstock.gateway.http.servers import MAX_MANAGEMENT_CONNECTIONS

PATHS = ("/healthz", "/readyz", "/metrics", "/penstock/feed")


async def statuses(front) -> list[int]:
    """The statuses of all management paths."""
    found = []
    for path in PATHS:
        async with front.client.get(front.management_url + path) as got:
            found.append(got.status)
    return found


@pytest.fixture
async def open_connections():
    """Open so many connections, which send nothing: `await open_connections(port, number)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_all(port, number):
            for _ in range(number):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)

        yield open_all


async def test_answered_while_clients_use_all_connections(start_engine, start_gateway, until):
    async def hang(_):
        await asyncio.Event().wait()

    engine = await start_engine(hang)
    front = await start_gateway(engine, max_connections=1)
    request = asyncio.create_task(front.ask())
    await until(lambda: engine.active == 1)
    async with front.client.get(front.url + "/v1/models") as got:
        assert got.status == 503  # the only connection is in use
    assert await statuses(front) == [200] * 4
    request.cancel()


@pytest.mark.parametrize("path", PATHS)
async def test_clients_port_has_no_management_endpoints(start_gateway, path):
    front = await start_gateway()
    async with front.client.get(front.url + path) as got:
        assert got.status == 404


@pytest.mark.parametrize("path", PATHS)
async def test_management_endpoints_are_only_read(start_gateway, path):
    front = await start_gateway()
    async with front.client.post(front.management_url + path) as got:
        assert got.status == 405


async def test_idle_strangers_cannot_fill_the_management_port(
    start_gateway, open_connections, until
):
    front = await start_gateway()
    connections = front.management.server_state.connections
    await open_connections(front.management.port, MAX_MANAGEMENT_CONNECTIONS)
    await until(lambda: len(connections) == MAX_MANAGEMENT_CONNECTIONS)
    assert await statuses(front) == [200] * 4


async def test_probes_are_answered_until_the_last_stream_has_ended(
    start_engine, start_gateway, until
):
    finish = asyncio.Event()

    async def streams(request):
        await request.head()
        await request.chunk(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
        await finish.wait()
        await request.chunk(b"data: [DONE]\n\n")
        await request.end()

    front = await start_gateway(await start_engine(streams), drain_timeout_s=10.0)
    async with front.post() as got:
        front.stop.set()
        await until(lambda: front.server.should_exit)
        assert await statuses(front) == [200, 503, 200, 200]
        finish.set()
        assert (await got.read()).endswith(b"data: [DONE]\n\n")
    await front.task


async def test_scrapes_at_the_same_time_share_a_page(start_gateway, monkeypatch):
    front = await start_gateway()
    metrics, rendered = front.gateway.state.metrics, []
    monkeypatch.setattr("penstock.clients.metrics.page.MAX_AGE_S", 3600.0)
    render = metrics.metric_set.render
    monkeypatch.setattr(
        metrics.metric_set, "render", lambda accept: [rendered.append(accept), render(accept)][1]
    )

    async def scrape():
        async with front.client.get(front.management_url + "/metrics") as got:
            return await got.text()

    pages = await asyncio.gather(*(scrape() for _ in range(20)))
    assert len(rendered) == 1
    assert set(pages) == {pages[0]}
