"""Tests that a client's disconnect frees everything in the engine, in every phase of a request."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

LONG = {"prompt": "The engine", "max_tokens": 1900, "ignore_eos": True, "temperature": 0}
HALF_A_BODY = b'{"prompt": "The engine", "max_to'


@pytest.fixture(scope="module")
def client_of_small_engine(launch: Any) -> httpx.Client:
    """A client of an engine that runs one request at a time in small steps, so that phases last."""
    client: httpx.Client
    client, _ = launch(
        "--max-model-len", "2048", "--max-num-seqs", "1", "--max-num-batched-tokens", "8"
    )  # fmt: skip
    return client


def gauges(client: httpx.Client) -> dict[str, float]:
    names = {
        "vllm:num_requests_running": "running",
        "vllm:num_requests_waiting": "waiting",
        "vllm:kv_cache_usage_perc": "kv",
        "penstock:prefill_tokens_pending": "pending",
    }
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {names[f.name]: f.samples[0].value for f in families if f.name in names}


def wait_for(client: httpx.Client, **expected: float) -> None:
    deadline_s = time.monotonic() + 20
    while not expected.items() <= (values := gauges(client)).items():
        assert time.monotonic() < deadline_s, f"{values} never became {expected}"
        time.sleep(0.01)


def wait_until_empty(client: httpx.Client) -> None:
    wait_for(client, running=0, waiting=0, kv=0, pending=0)


@contextlib.contextmanager
def sent(
    client: httpx.Client, body: bytes, *, length: int | None = None
) -> Iterator[socket.socket]:
    """Sends a request on a connection of its own, which is closed at the end."""
    url = client.base_url
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: {url.host}\r\n"
        f"content-length: {length or len(body)}\r\n\r\n"
    )
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(head.encode() + body)
        yield connection


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_disconnect_during_decode(
    client_of_small_engine: httpx.Client, is_streamed: bool
) -> None:
    with sent(client_of_small_engine, json.dumps(LONG | {"stream": is_streamed}).encode()):
        wait_for(client_of_small_engine, running=1, pending=0)
    wait_until_empty(client_of_small_engine)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_disconnect_during_prefill(
    client_of_small_engine: httpx.Client, is_streamed: bool
) -> None:
    body = LONG | {"prompt": list(range(3, 1000)), "max_tokens": 9, "stream": is_streamed}
    body["cache_salt"] = str(is_streamed)
    with sent(client_of_small_engine, json.dumps(body).encode()):
        wait_for(client_of_small_engine, running=1)
    wait_until_empty(client_of_small_engine)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_disconnect_in_the_queue(client_of_small_engine: httpx.Client, is_streamed: bool) -> None:
    body = json.dumps(LONG | {"stream": is_streamed}).encode()
    with sent(client_of_small_engine, body):
        wait_for(client_of_small_engine, running=1, waiting=0)
        with sent(client_of_small_engine, body):
            wait_for(client_of_small_engine, running=1, waiting=1)
        wait_for(client_of_small_engine, running=1, waiting=0)
    wait_until_empty(client_of_small_engine)


def test_a_disconnect_in_the_middle_of_a_stream(client_of_small_engine: httpx.Client) -> None:
    with client_of_small_engine.stream(
        "POST", "/v1/completions", json=LONG | {"stream": True}
    ) as answer:
        lines = answer.iter_lines()
        for _ in range(6):
            next(lines)
    wait_until_empty(client_of_small_engine)


def test_a_disconnect_while_the_body_is_sent(client_of_small_engine: httpx.Client) -> None:
    with sent(client_of_small_engine, HALF_A_BODY, length=1000):
        assert client_of_small_engine.get("/health").status_code == 200
    wait_until_empty(client_of_small_engine)


def test_a_disconnect_ends_all_choices(client_of_small_engine: httpx.Client) -> None:
    body = json.dumps(LONG | {"prompt": ["a", "b", "c"], "stream": True}).encode()
    with sent(client_of_small_engine, body):
        wait_for(client_of_small_engine, running=1, waiting=2)
    wait_until_empty(client_of_small_engine)


def test_the_engine_still_answers(client_of_small_engine: httpx.Client) -> None:
    answer = client_of_small_engine.post("/v1/completions", json=LONG | {"max_tokens": 5})
    assert answer.json()["usage"]["completion_tokens"] == 5
    wait_until_empty(client_of_small_engine)
