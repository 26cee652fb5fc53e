"""The page of the operator's metrics is rendered beside the event loop, once for all who ask."""

import asyncio
import threading

import aiohttp
import pytest
from prometheus_client.registry import Collector

from penstock.clients.metrics import page as metrics_page
from penstock.clients.metrics.page import MAX_AGE_S, MetricsPage
from penstock.controller.http.placements import Placements
from penstock.controller.http.recorder import Recorder
from penstock.controller.http.server import OperatorEndpoints

WITHIN_S = 30.0


class SlowCollector(Collector):
    """Collector without series that ends when it may."""

    def __init__(self):
        self.has_started, self.may_end = threading.Event(), threading.Event()
        self.num_begun = 0

    def collect(self):
        self.num_begun += 1
        self.has_started.set()
        assert self.may_end.wait(WITHIN_S)
        return []


@pytest.fixture
async def operator():
    """Serve the endpoints of an operator, and yield its endpoints and their URL."""
    endpoints = OperatorEndpoints()
    async with endpoints.serve("127.0.0.1", 0, Recorder(), Placements()) as port:
        yield endpoints, f"http://127.0.0.1:{port}"


async def test_probes_are_answered_while_metrics_are_rendered(operator):
    endpoints, url = operator
    slow = SlowCollector()
    endpoints.metrics.add_collector(slow)
    async with aiohttp.ClientSession() as session:
        reads = [asyncio.create_task(session.get(f"{url}/metrics")) for _ in range(3)]
        await asyncio.to_thread(slow.has_started.wait, WITHIN_S)
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        slow.may_end.set()
        texts = {await (await read).text() for read in reads}
    assert len(texts) == 1
    assert "penstock_operator_leading 0.0" in texts.pop()
    assert slow.num_begun == 1


async def test_a_page_is_answered_with_for_a_second_in_each_format(monkeypatch):
    now_s = 100.0
    monkeypatch.setattr(metrics_page, "monotonic", lambda: now_s)
    rendered = []

    def render(accept):
        rendered.append(accept)
        return b"%d" % len(rendered), accept

    page = MetricsPage(render)
    assert await page.get("text/plain") == (b"1", "")
    assert await page.get("application/openmetrics-text;version=1.0.0") == (
        b"2",
        "application/openmetrics-text",
    )
    now_s += MAX_AGE_S - 0.001
    assert await page.get("") == (b"1", "")
    now_s += 0.001
    assert await page.get("") == (b"3", "")


async def test_an_error_is_not_answered_with_again():
    answers = iter([ValueError("unexpected"), (b"text", "")])

    def render(accept):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    page = MetricsPage(render)
    with pytest.raises(ValueError, match="unexpected"):
        await page.get("")
    assert await page.get("") == (b"text", "")
