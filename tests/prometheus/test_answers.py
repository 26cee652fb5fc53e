"""Numbers asked of a real Prometheus; and of servers that only look like one."""

import asyncio
import json
import signal
from urllib.parse import parse_qs, urlsplit

import pytest

from penstock.clients import prometheus as gates
from penstock.clients.clock import monotonic
from penstock.clients.prometheus import Prometheus
from penstock.clients.promql import Caps
from penstock.core.canary.metric_gate import QueryFailure

HASTE = Caps(timeout_s=0.5, max_bytes=gates.CAPS.max_bytes)


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


async def test_what_an_engine_says_of_itself(prometheus, waiting):
    await prometheus.until(f"vllm:num_requests_waiting == {waiting}")
    query = 'max(max_over_time(vllm:num_requests_waiting{namespace="default"}[30s]))'
    assert await ask(prometheus.host, query) == waiting
    assert await ask(prometheus.host, "vllm:kv_cache_usage_perc > 1") is None


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("sum(", "refuses the query: invalid parameter"),
        ("up or vector(1)", "gives 2 series: put sum"),
        ("vector(1)[5m:1m]", "gives a range"),
    ],
)
async def test_what_is_no_number_says_what_to_change(prometheus, monkeypatch, query, told):
    monkeypatch.setattr(gates, "CAPS", HASTE)
    await prometheus.until("up == 1")
    answer = await ask(prometheus.host, query)
    assert isinstance(answer, QueryFailure)
    assert told in answer.reason


async def test_an_answer_that_is_too_large(prometheus, monkeypatch):
    monkeypatch.setattr(gates, "CAPS", Caps(timeout_s=5, max_bytes=1000))
    await prometheus.until("up == 1")
    answer = await ask(prometheus.host, '{__name__=~"vllm:.+"}')
    assert isinstance(answer, QueryFailure)
    assert "cannot be asked" in answer.reason


async def test_a_path_that_is_not_prometheus(prometheus):
    answer = await ask(prometheus.host, "2", "/elsewhere")
    assert isinstance(answer, QueryFailure)
    assert "HTTP Status Code 404" in answer.reason


async def test_only_hosts_that_the_operator_was_given_are_asked(prometheus):
    for url in (prometheus.url, "http://169.254.169.254/latest"):
        answer = await Prometheus(["other:9090"]).ask(url, "2")
        assert isinstance(answer, QueryFailure)
        assert "--metrics-host=" in answer.reason


async def test_a_server_that_hangs_or_is_gone(start_prometheus, monkeypatch):
    monkeypatch.setattr(gates, "CAPS", HASTE)
    server = start_prometheus({})
    assert await ask(server.host, "2") == 2.0
    server.process.send_signal(signal.SIGSTOP)
    for _ in range(2):
        began_s = monotonic()
        answer = await ask(server.host, "2")
        assert isinstance(answer, QueryFailure)
        assert "cannot be asked" in answer.reason
        assert monotonic() - began_s < 10 * HASTE.timeout_s
        server.process.kill()
        server.process.wait()


SAID = {
    "moved": (302, {}),
    "odd": (200, ["what"]),
    "slow": (503, {"status": "error", "errorType": "timeout", "error": "query timed out"}),
}


class Impostor:
    """Answers as no Prometheus does."""

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
            text = json.dumps(said).encode()
            writer.write(f"HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\n".encode())
            writer.write(f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode())
            writer.write(text)
        writer.close()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("moved", "HTTP Status Code 302"),
        ("slow", "refuses the query: query timed out"),
        ("odd", "does not answer as Prometheus does"),
        ("drip", "cannot be asked"),
    ],
)
async def test_an_impostor_is_asked_once(monkeypatch, query, told):
    monkeypatch.setattr(gates, "CAPS", HASTE)
    impostor = Impostor()
    listening = await asyncio.start_server(impostor.serve, "127.0.0.1", 0)
    host = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    answer = await ask(host, query)
    listening.close()
    await asyncio.wait(impostor.tasks)
    assert isinstance(answer, QueryFailure)
    assert told in answer.reason
    assert impostor.queries == [("/api/v1/query", query)]
