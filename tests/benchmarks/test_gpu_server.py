"""The load on the server of the checks on a GPU: its client, its figures, and the server's process."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import server
from benchmarks.gpu.context import Context, LeftOut
from benchmarks.gpu.serving import http_server, model_server
from benchmarks.gpu.serving.http_server import Server, read_metrics
from benchmarks.gpu.serving.model_server import ModelServers
from benchmarks.gpu.serving.stream_client import Answer, Load, Streams, percentile, summarize

Body = dict[str, Any]
Reply = Callable[[Body, asyncio.StreamWriter], Any]
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text: str) -> bytes:
    data = f"data: {text}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def stream(body: Body, writer: asyncio.StreamWriter, *, missing: int = 0) -> None:
    """Answer with a token every 2 ms, and the usage, whose last bytes come on their own."""
    writer.write(HEAD)
    num_tokens = body["max_tokens"] - missing
    for _ in range(num_tokens):
        writer.write(chunk(json.dumps({"choices": [{"text": " word"}]})))
        await writer.drain()
        await asyncio.sleep(0.002)
    end = chunk(json.dumps({"usage": {"completion_tokens": num_tokens}})) + chunk("[DONE]")
    writer.write(end[:-9])
    await asyncio.sleep(0.002)
    writer.write(end[-9:])


@asynccontextmanager
async def answering(reply: Reply) -> AsyncIterator[tuple[int, list[Body]]]:
    """A server of completions. Yields its port and the bodies of its requests."""
    bodies: list[Body] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        bodies.append(json.loads(await reader.readexactly(size)))
        try:
            await reply(bodies[-1], writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1], bodies


def load(port: int, *, streams: int = 3, seconds: float | None, output_tokens: int = 10) -> Load:
    return Load(port, streams, seconds, 5, 9, output_tokens, 100, 7)


async def test_a_closed_loop_sends_the_next_request_after_an_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with answering(stream) as (port, bodies):
        figures = await Streams(load(port, seconds=1.5)).run()
    assert capsys.readouterr().out == "steady\nending\n"
    assert figures["whole_answers"] > 3
    assert len(bodies) - figures["whole_answers"] <= 3  # those that were cut at the end
    assert (figures["failures"], figures["short_answers"]) == (0, 0)
    assert figures["tpot_p50_s"] > 0
    assert figures["ttft_p50_s"] > 0
    assert {len(body["prompt"]) for body in bodies} <= {5, 6, 7, 8, 9}
    assert all(0 <= token < 100 for body in bodies for token in body["prompt"])
    assert len({tuple(body["prompt"]) for body in bodies}) == len(bodies)
    assert {body["temperature"] for body in bodies} == {0, 1}


async def test_a_wave_sends_one_request_a_stream_and_ends_with_the_first_answer() -> None:
    async with answering(stream) as (port, bodies):
        figures = await Streams(load(port, seconds=None)).run()
    assert len(bodies) == 3
    assert 1 <= figures["whole_answers"] <= 3


async def refuse(body: Body, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull")


async def break_off(body: Body, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + chunk(json.dumps({"choices": [{"text": " word"}]})))


async def close(body: Body, writer: asyncio.StreamWriter) -> None:
    pass


@pytest.mark.parametrize(
    ("reply", "text"),
    [(refuse, "full"), (break_off, " word"), (close, "closed without an answer")],
)
@pytest.mark.parametrize("seconds", [0.5, None])
async def test_requests_that_fail_end_the_load(
    reply: Reply, text: str, seconds: float | None
) -> None:
    async with answering(reply) as (port, bodies):
        async with asyncio.timeout(5):
            figures = await Streams(load(port, seconds=seconds)).run()
    assert len(bodies) == 3  # none is sent again
    assert figures["failures"] >= 1
    assert text in figures["first_failure"]
    assert server.judge(figures)["ok"] is False


async def test_no_server_is_a_failure() -> None:
    async with answering(close) as (port, _):
        pass
    async with asyncio.timeout(5):
        figures = await Streams(load(port, seconds=5)).run()
    assert figures["failures"] == 3


async def test_answers_of_another_length_are_counted() -> None:
    async def short(body: Body, writer: asyncio.StreamWriter) -> None:
        await stream(body, writer, missing=1)

    async with answering(short) as (port, _):
        figures = await Streams(load(port, seconds=1.5)).run()
    assert figures["short_answers"] == figures["whole_answers"] > 0
    assert "another length" in server.judge(figures)["difference"]


def test_figures_are_of_answers_sent_when_all_streams_run() -> None:
    first = Answer(0.0, [5.0, 6.0, 7.0], 3)
    second = Answer(10.0, [10.5, 10.7, 11.5, 11.5], 4)
    figures = summarize([first, second], 8.0, 4)
    assert figures["whole_answers"] == 2
    assert figures["short_answers"] == 1
    assert (figures["ttft_p50_s"], figures["ttft_p95_s"]) == (0.5, 0.5)
    assert figures["tpot_p50_s"] == pytest.approx(1 / 3)
    assert figures["gap_p99_s"] == pytest.approx(0.8)
    assert summarize([first], 8.0, 4)["ttft_p50_s"] == 5.0


def test_figures_without_an_answer() -> None:
    figures = summarize([Answer(0.0), Answer(0.0, [1.0])], 0.0, 4)
    assert (figures["ttft_p50_s"], figures["tpot_p50_s"], figures["gap_p99_s"]) == (1.0, None, None)
    assert server.judge(figures)["difference"] == "no request was answered in the time"


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1), (25, 1), (26, 2), (50, 2), (95, 4), (100, 4)]
)
def test_percentiles(percent: float, value: float) -> None:
    assert percentile([3, 1, 4, 2], percent) == value


GOOD: Mapping[str, Any] = {"failures": 0, "short_answers": 0, "whole_answers": 2}


def test_loads_are_good_only_together() -> None:
    assert server.judge(GOOD, GOOD) == {"ok": True}
    bad = {**GOOD, "failures": 2, "first_failure": "full"}
    assert server.judge(GOOD, bad) == {
        "ok": False,
        "difference": "2 requests failed, the first: full",
    }


def test_metrics_are_added_up_over_labels() -> None:
    text = '# HELP a A.\n# TYPE a counter\na{x="1 2"} 1.5\na{x="3"} 2\nb 4e3\n\n'
    assert read_metrics(text) == {"a": 3.5, "b": 4000.0}


# The server's process

LISTENING = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(b'penstock:startup_seconds{engine="0",phase="warm_up"} 1.25')
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", int(sys.argv[4])), Handler).serve_forever()
"""


def test_a_server_is_ready_and_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "START", LISTENING)
    running = Server(tmp_path, ["--flag"], tmp_path / "log")
    try:
        running.wait_until_ready(20)
        assert running.start_phases() == {"start_warm_up_s": 1.25}
        assert running.metrics() == {"penstock:startup_seconds": 1.25}
        assert running.cpu_s() > 0
        assert running.is_running()
    finally:
        running.kill()
    assert not running.is_running()


@pytest.mark.parametrize(
    ("code", "limit_s", "what"),
    [
        ("import sys; sys.exit('x' * 9000 + ' a bad flag')", 20, "ended with 1; .* a bad flag"),
        ("import time; time.sleep(60)", 0.3, "is not ready after 0 s"),
    ],
)
def test_a_server_that_does_not_start_has_its_log_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, limit_s: float, what: str
) -> None:
    monkeypatch.setattr(http_server, "START", code)
    failing = Server(tmp_path, [], tmp_path / "log")
    try:
        with pytest.raises(RuntimeError, match=what) as error:
            failing.wait_until_ready(limit_s)
    finally:
        failing.kill()
    assert len(str(error.value)) < 3000


class FakeServer:
    """Says what happens to it."""

    def __init__(self, events: list[str], model: Path, is_broken: bool) -> None:
        self._events, self._model, self._is_broken = events, model, is_broken
        events.append(f"start {model.name}")

    def wait_until_ready(self, limit_s: float) -> None:
        if self._is_broken:
            raise RuntimeError("a bad flag")

    def start_phases(self) -> dict[str, float]:
        return {}

    def is_running(self) -> bool:
        return True

    def kill(self) -> None:
        self._events.append(f"kill {self._model.name}")


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Events of servers of fake models; that of 8b does not start."""
    events: list[str] = []

    def make_folder(num_bytes: int) -> Path:
        folder = tmp_path / ("8b" if num_bytes > 1e9 else "0.6b")
        folder.mkdir()
        return folder

    monkeypatch.setattr(model_server, "make_folder", make_folder)
    monkeypatch.setattr(model_server, "write_model", lambda *_: None)
    monkeypatch.setattr(
        model_server, "config_of", lambda shape, is_small: {"bytes": 2e9 if shape == "8b" else 1e8}
    )
    monkeypatch.setattr(model_server, "model_bytes", lambda config: config["bytes"])
    monkeypatch.setattr(
        model_server, "Server", lambda model, *_: FakeServer(events, model, model.name == "8b")
    )
    return events


def test_one_server_runs_at_a_time_and_a_broken_one_is_started_once(
    events: list[str], tmp_path: Path
) -> None:
    servers = ModelServers(Context("cpu", 0, 1000.0, now=lambda: 0.0))
    first, figures = servers.start("0.6b", 5)
    assert {"write_s", "start_s"} <= figures.keys()
    assert servers.start("0.6b", 5) == (first, {})
    with pytest.raises(RuntimeError, match="a bad flag"):
        servers.start("8b", 5)
    with pytest.raises(LeftOut, match="has not started"):
        servers.start("8b", 5)
    assert servers.start("0.6b", 5)[1] != {}
    servers.close()
    assert events == ["start 0.6b", "kill 0.6b", "start 8b", "kill 8b", "start 0.6b", "kill 0.6b"]
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_left_out_if_no_time_is_left_for_it(events: list[str]) -> None:
    servers = ModelServers(Context("cpu", 0, 30.0, now=lambda: 0.0))
    servers.start("0.6b", 5)
    with pytest.raises(LeftOut, match=r"it takes about 29 s, and 28 s are left"):
        ModelServers(Context("cpu", 0, 28.0, now=lambda: 0.0)).start("8b", 5)
    servers.close()
    assert events == ["start 0.6b", "kill 0.6b"]
