"""Queries to a real Prometheus, and to servers with invalid responses."""

import asyncio
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.clients.machine.clock import monotonic
from penstock.clients.prometheus import metric_gates as gates
from penstock.clients.prometheus.metric_gates import Prometheus
from penstock.clients.prometheus.promql import QueryLimits
from penstock.core.canary.metric_gate import QueryFailure

HASTE = QueryLimits(timeout_s=0.5, max_bytes=gates.LIMITS.max_bytes)


async def ask(host, query, path=""):
    return await Prometheus([host]).ask(f"http://{host}{path}", query)


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
async def test_numbers(prometheus, query, answer):
    assert await ask(prometheus.host, query, "/") == answer


async def test_metrics_of_an_engine(prometheus, waiting):
    await prometheus.until(f"vllm:num_requests_waiting == {waiting}")
    query = 'max(max_over_time(vllm:num_requests_waiting{namespace="default"}[30s]))'
    assert await ask(prometheus.host, query) == waiting
    assert await ask(prometheus.host, "vllm:kv_cache_usage_perc > 1") is None


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("sum(", "refuses the query: invalid parameter"),
        ("up or vector(1)", "gives 2 series: put sum"),
        ("vector(1)[5m:1m]", "gives a range"),
    ],
)
async def test_result_that_is_no_number_says_what_to_change(prometheus, monkeypatch, query, reason):
    monkeypatch.setattr(gates, "LIMITS", HASTE)
    await prometheus.until("up == 1")
    answer = await ask(prometheus.host, query)
    assert isinstance(answer, QueryFailure)
    assert reason in answer.reason


async def test_too_large_response(prometheus, monkeypatch):
    monkeypatch.setattr(gates, "LIMITS", QueryLimits(timeout_s=5, max_bytes=1000))
    await prometheus.until("up == 1")
    answer = await ask(prometheus.host, '{__name__=~"vllm:.+"}')
    assert isinstance(answer, QueryFailure)
    assert "cannot be queried" in answer.reason


async def test_path_that_is_not_prometheus(prometheus):
    answer = await ask(prometheus.host, "2", "/elsewhere")
    assert isinstance(answer, QueryFailure)
    assert "HTTP Status Code 404" in answer.reason


async def test_only_allowed_hosts_are_queried(prometheus):
    for url in (prometheus.url, "http://169.254.169.254/latest"):
        answer = await Prometheus(["other:9090"]).ask(url, "2")
        assert isinstance(answer, QueryFailure)
        assert "--metrics-host=" in answer.reason


async def test_server_that_hangs_or_is_unreachable(start_prometheus, monkeypatch):
    monkeypatch.setattr(gates, "LIMITS", HASTE)
    server = start_prometheus({})
    assert await ask(server.host, "2") == 2.0
    server.pause()
    for _ in range(2):
        began_s = monotonic()
        answer = await ask(server.host, "2")
        assert isinstance(answer, QueryFailure)
        assert "cannot be queried" in answer.reason
        assert monotonic() - began_s < 10 * HASTE.timeout_s
        server.process.kill()
        server.process.wait()


def vector(value):
    return {"status": "success", "data": {"result": [{"metric": {}, "value": value}]}}


SAID = {
    "huge": (200, vector([1.0, 10**400])),
    "short": (200, vector([1.0])),
    "deep": (200, "[" * 100_000),
    "moved": (302, {}),
    "odd": (200, ["what"]),
    "slow": (503, {"status": "error", "errorType": "timeout", "error": "query timed out"}),
}


class Impostor:
    """A server whose responses are not those of Prometheus."""

    def __init__(self):
        self.queries, self.tasks = [], set()

    async def serve(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked = urlsplit(head.split(" ")[1])
        (query,) = parse_qs(asked.query)["query"]
        self.queries.append((asked.path, query))
        if query == "drip":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not writer.is_closing():
                writer.write(b" ")
                await asyncio.sleep(0.02)
        else:
            status, said = SAID[query]
            text = (said if isinstance(said, str) else json.dumps(said)).encode()
            writer.write(f"HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\n".encode())
            writer.write(f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode())
            writer.write(text)
        writer.close()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("moved", "HTTP Status Code 302"),
        ("slow", "refuses the query: query timed out"),
        ("odd", "does not answer as Prometheus does"),
        ("huge", "does not answer as Prometheus does"),
        ("short", "does not answer as Prometheus does"),
        ("deep", "does not answer as Prometheus does"),
        ("drip", "cannot be queried"),
    ],
)
async def test_invalid_response_is_not_retried(monkeypatch, query, reason):
    monkeypatch.setattr(gates, "LIMITS", HASTE)
    impostor = Impostor()
    listening = await asyncio.start_server(impostor.serve, "127.0.0.1", 0)
    host = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    answer = await ask(host, query)
    listening.close()
    await asyncio.wait(impostor.tasks)
    assert isinstance(answer, QueryFailure)
    assert reason in answer.reason
    assert impostor.queries == [("/api/v1/query", query)]
