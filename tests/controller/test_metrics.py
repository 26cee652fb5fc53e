"""Numbers asked of a server that speaks Prometheus' HTTP API, over real sockets."""

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.adapters import prometheus
from penstock.adapters.clock import monotonic
from penstock.adapters.prometheus import Prometheus
from penstock.core.canary.metric_gate import Unreadable


def result(kind, value):
    return {"status": "success", "data": {"resultType": kind, "result": value}}


def series(value, **labels):
    return {"metric": labels, "value": [1.5e9, value]}


# Answers as Prometheus 3 gives them: query -> (status, body).
ANSWERS = {
    "vector(1.5)": (200, result("vector", [series("1.5")])),
    "2": (200, result("scalar", [1.5e9, "2"])),
    "absent_metric": (200, result("vector", [])),
    "0/0": (200, result("scalar", [1.5e9, "NaN"])),
    "1/0": (200, result("scalar", [1.5e9, "+Inf"])),
    "up": (200, result("vector", [series("1", job="a"), series("0", job="b")])),
    "up[5m]": (200, result("matrix", [{"metric": {}, "values": [[1.5e9, "1"]]}])),
    "sum(": (400, {"status": "error", "errorType": "bad_data",
                   "error": "invalid parameter \"query\": 1:5: parse error: unclosed left parenthesis"}),
    "slow": (503, {"status": "error", "errorType": "timeout", "error": "query timed out"}),
    "moved": (302, {}),
    "gone": (404, {}),
    "odd": (200, ["what"]),
    "large": (200, result("vector", [series("1", text="x" * prometheus.MAX_BYTES)])),
}  # fmt: skip


class Server:
    def __init__(self):
        self.queries, self.tasks, self.ending = [], set(), asyncio.Event()

    async def serve(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        asked = parse_qs(urlsplit(path).query)
        (query,) = asked["query"]
        self.queries.append((urlsplit(path).path, query, asked["timeout"]))
        if query == "drip":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not writer.is_closing():
                writer.write(b" ")
                await asyncio.sleep(0.02)
        if query == "silent":
            await self.ending.wait()
        if query in ("drip", "silent"):
            writer.close()
            return
        status, body = ANSWERS[query]
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode())
        writer.write(text)
        writer.close()


@pytest.fixture
async def server(monkeypatch):
    monkeypatch.setattr(prometheus, "TIMEOUT_S", 0.5)
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.host = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield made
    made.ending.set()
    listening.close()
    if made.tasks:
        await asyncio.wait(made.tasks)


async def ask(server, query, path=""):
    return await Prometheus([server.host]).ask(f"http://{server.host}{path}", query)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("vector(1.5)", 1.5),
        ("2", 2.0),
        ("absent_metric", None),
        ("0/0", None),
        ("1/0", float("inf")),
    ],
)
async def test_numbers(server, query, answer):
    assert await ask(server, query, "/prefix/") == answer
    assert server.queries == [("/prefix/api/v1/query", query, ["0.5s"])]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("sum(", "refuses the metric's query: invalid parameter"),
        ("slow", "query timed out"),
        ("up", "gives 2 series: put sum"),
        ("up[5m]", "gives a range"),
        ("moved", "HTTP Status Code 302"),
        ("gone", "HTTP Status Code 404"),
        ("odd", "does not answer as Prometheus does"),
        ("large", "cannot be asked"),
        ("drip", "cannot be asked"),
        ("silent", "cannot be asked"),
    ],
)
async def test_what_cannot_be_read_says_what_to_change(server, query, told):
    began_s = monotonic()
    answer = await ask(server, query)
    assert isinstance(answer, Unreadable)
    assert told in answer.reason
    assert len(server.queries) == 1, "asked again, or elsewhere"
    assert monotonic() - began_s < 10 * prometheus.TIMEOUT_S


async def test_only_hosts_that_the_operator_was_given_are_asked(server):
    for url in (f"http://{server.host}", "http://169.254.169.254/latest"):
        answer = await Prometheus(["other:9090"]).ask(url, "2")
        assert "--metrics-host=" in answer.reason
    assert server.queries == []


async def test_nobody_listens():
    answer = await Prometheus(["127.0.0.1:1"]).ask("http://127.0.0.1:1", "2")
    assert "cannot be asked: ConnectionError" in answer.reason
