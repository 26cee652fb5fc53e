"""Requests that no client of Penstock sends: the server refuses them and goes on."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.support.sources.hub_server import HubServer
from tests.support.sources.model_files import model_files
from tests.support.sources.node_cache import ask, fetch_as_pod, links, node_cache, post, wait_for

from penstock_engine.contract.model_source import parse_model_source
from penstock_engine.sources.node_cache import app
from penstock_engine.sources.node_cache.routes import FETCH_PATH, HEALTH_PATH, HOLD_PATH
from penstock_engine.sources.node_cache.socket_address import socket_address
from penstock_engine.sources.storage.store import Store

HEALTH = f"GET {HEALTH_PATH} HTTP/1.0\r\n\r\n".encode()


@pytest.fixture
def cache(hub: HubServer, tmp_path: Path) -> Iterator[Path]:
    """The cache of a server that may fetch from hf://org. The hub has a model there."""
    hub.add("org/name", model_files())
    with node_cache(tmp_path / "cache"):
        yield tmp_path / "cache"


def content(**entries: object) -> bytes:
    return json.dumps(entries).encode()


def status(answer: bytes) -> int:
    return int(answer.split()[1])


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (post(FETCH_PATH, b"x" * 4097), 413),
        (post(FETCH_PATH, b""), 400),
        (post(FETCH_PATH, b"\xff\xfe"), 400),
        (post(FETCH_PATH, b"{"), 400),
        (post(FETCH_PATH, b"[" * 4096), 400),
        (post(FETCH_PATH, b'["uri"]'), 400),
        (post(FETCH_PATH, content(uri=1)), 400),
        (post(FETCH_PATH, b'{"uri": "hf://org/name@\\ud800"}'), 400),
        (post(FETCH_PATH, content(uri="hf://org/" + "n" * 2048)), 400),
        (post(FETCH_PATH, content(uri="hf://org/name", cache_bytes=1)), 400),
        (post(FETCH_PATH, content(uri="hf://org/name", hold_seconds=-1)), 400),
        (post(FETCH_PATH, content(uri="hf://org/name", hold_seconds=3601)), 400),
        (post(FETCH_PATH, content(uri="hf://org/name", hold_seconds=float("nan"))), 400),
        (post(FETCH_PATH, content(uri="hf://org/../strangers/name")), 400),
        (post(FETCH_PATH, content(uri="hf://orgs/name")), 403),
        (post(FETCH_PATH, content(uri="https://127.0.0.1/m.gguf#sha256=" + "a" * 64)), 403),
        (post(FETCH_PATH, content(uri="file:///etc/passwd")), 403),
        (post(HOLD_PATH, content(resolved_uri="file:///etc/passwd")), 404),
        (post(HOLD_PATH, content(resolved_uri="../../name")), 400),
        (post(HOLD_PATH, content(resolved_uri=f"hf://org/name@{'0' * 40}")), 404),
        (post("/v1/other", b""), 404),
        (post("/v1/../../etc/passwd", b""), 404),
        (f"GET {FETCH_PATH} HTTP/1.0\r\n\r\n".encode(), 405),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (f"POST {FETCH_PATH} HTTP/1.0\r\nContent-Length: -1\r\n\r\n".encode(), 400),
    ],
)  # fmt: skip
def test_a_request_that_is_wrong_is_refused(
    cache: Path, hub: HubServer, request_bytes: bytes, expected: int
) -> None:
    assert status(ask(cache, request_bytes)) == expected
    assert ask(cache, HEALTH).endswith(b"ok")
    assert hub.requests == []
    assert not [*cache.glob("uses/*")]


def test_a_body_that_does_not_come_is_not_waited_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "BODY_TIMEOUT_S", 0.05)
    assert (
        status(ask(cache, f"POST {FETCH_PATH} HTTP/1.0\r\nContent-Length: 9\r\n\r\n".encode()))
        == 408
    )


def connect(cache: Path, stack: ExitStack) -> socket.socket:
    connection = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
    with socket_address(cache) as address:
        connection.connect(address)
    return connection


def test_many_connections_that_read_nothing_leave_others_their_turn(
    cache: Path, tmp_path: Path
) -> None:
    uri = fetch_as_pod("hf://org/name", tmp_path / "a", cache).resolved_uri
    with ExitStack() as stack:
        for _ in range(100):
            connect(cache, stack)  # without a request
            connect(cache, stack).sendall(post(FETCH_PATH, content(uri=uri)))
            connect(cache, stack).sendall(post(HOLD_PATH, content(resolved_uri=uri)))
        assert fetch_as_pod(uri, tmp_path / "b", cache).downloaded_bytes == 0
        assert len(links(tmp_path / "b")) == 3
        # All connections share one lease, once the fetch has given up its own.
        wait_for(lambda: len([*cache.glob("uses/*/*")]) == 1)


def test_more_requests_than_may_be_at_a_time_are_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = fetch_as_pod("hf://org/name", tmp_path / "a", cache).resolved_uri
    monkeypatch.setattr(app, "MAX_REQUESTS", 2)
    with ExitStack() as stack:
        for _ in range(2):
            connection = connect(cache, stack)
            connection.sendall(post(HOLD_PATH, content(resolved_uri=uri)))
            assert connection.recv(64).startswith(b"HTTP/1.1 200")
        answer = ask(cache, post(HOLD_PATH, content(resolved_uri=uri)))
        assert (status(answer), b"too many connections" in answer) == (503, True)
    wait_for(lambda: status(ask(cache, HEALTH)) == 200)


def test_a_pod_with_all_holds_does_not_keep_others_from_having_their_models_kept(
    cache: Path, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/other", model_files(seed=1))
    uris = [
        fetch_as_pod(f"hf://org/{name}", tmp_path / name, cache).resolved_uri
        for name in ("name", "other")
    ]
    monkeypatch.setattr(app, "MAX_HOLDS", 2)
    with ExitStack() as stack:
        for _ in range(2):
            connection = connect(cache, stack)
            connection.sendall(post(HOLD_PATH, content(resolved_uri=uris[0])))
            assert connection.recv(64).startswith(b"HTTP/1.1 200")
        assert status(ask(cache, post(HOLD_PATH, content(resolved_uri=uris[1])))) == 503
        absent = f"hf://org/name@{'0' * 40}"
        assert status(ask(cache, post(HOLD_PATH, content(resolved_uri=absent)))) == 404
        store = Store(cache)
        assert store.is_in_use(store.model_path(parse_model_source(uris[1])))
        assert not store.is_in_use(store.model_path(parse_model_source(absent)))


def test_pods_that_wait_for_fetches_leave_requests_to_others(
    cache: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_WAITING", 2)
    hub.cdn.delay_s = 0.2
    with ExitStack() as stack:
        for _ in range(2):
            connection = connect(cache, stack)
            connection.sendall(post(FETCH_PATH, content(uri="hf://org/name")))
            assert connection.recv(64).startswith(b"HTTP/1.1 200")
        answer = ask(cache, post(FETCH_PATH, content(uri="hf://org/name")))
        assert (status(answer), b"as many pods wait" in answer) == (503, True)
        assert ask(cache, HEALTH).endswith(b"ok")


def test_a_pod_that_goes_away_leaves_the_fetch_to_others(
    cache: Path, hub: HubServer, tmp_path: Path
) -> None:
    hub.cdn.delay_s = 1.0  # of each block
    with ExitStack() as stack:
        connection = connect(cache, stack)
        connection.sendall(post(FETCH_PATH, content(uri="hf://org/name")))
        wait_for(lambda: hub.requests)
    hub.cdn.delay_s = 0.0
    fetch_as_pod("hf://org/name", tmp_path / "b", cache)
    assert hub.cdn.sent_bytes == len(model_files()["model.safetensors"])
    assert len(links(tmp_path / "b")) == 3
