"""Runs the server of a node's cache, in a thread or as a process, and asks it as a pod does."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.support.sources.quick_limits import QUICK

from penstock_engine.sources.fetch import FetchResult
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.node_cache.allowed import parse_allowed
from penstock_engine.sources.node_cache.client import fetch_with_node_cache
from penstock_engine.sources.node_cache.server import NodeCacheServer
from penstock_engine.sources.node_cache.socket_address import socket_address
from penstock_engine.sources.progress import Progress

ENGINE = Path(sys.executable).parent / "penstock-engine"
NOT_USED = "The cache of the node at"  # a line that begins so says why a pod fetched itself


def wait_for(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def listens(cache: Path) -> bool:
    """Whether a server accepts connections."""
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        try:
            with socket_address(cache) as address:
                connection.connect(address)
        except OSError:
            return False
    return True


@contextmanager
def node_cache(
    cache: Path, *allowed: str, limits: FetchLimits = QUICK, end: Callable[[], None] = lambda: None
) -> Iterator[list[str]]:
    """Run a server in a thread. Yields the lines that it says. end: as for the server."""
    lines: list[str] = []
    prefixes = [parse_allowed(text) for text in allowed or ("hf://org",)]
    server = NodeCacheServer(cache, prefixes, limits, lines.append, end)
    thread = threading.Thread(target=lambda: asyncio.run(server.run()))
    thread.start()
    try:
        wait_for(lambda: listens(cache) or not thread.is_alive())
        yield lines
    finally:
        server.stop()
        thread.join()


@contextmanager
def node_cache_process(
    cache: Path, *flags: str, umask: int = 0o022
) -> Iterator["subprocess.Popen[str]"]:
    """Run a server as a process, until the end of the block."""
    words: Sequence[str | Path] = [
        ENGINE,
        "node-cache",
        "--cache",
        cache,
        "--allow",
        "hf://org",
        *flags,
    ]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, umask=umask)
    try:
        wait_for(lambda: listens(cache) or process.poll() is not None)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def fetch_as_pod(
    uri: str,
    into: Path,
    cache: Path,
    limits: FetchLimits = QUICK,
    say: Callable[[str], None] = lambda _: None,
) -> FetchResult:
    """Fetch a model as `fetch --node-cache` does."""
    return fetch_with_node_cache(uri, into, cache, limits, Progress(say))


def ask(cache: Path, request: bytes) -> bytes:
    """Send bytes to a server. Returns its whole answer."""
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(60)
        with socket_address(cache) as address:
            connection.connect(address)
        connection.sendall(request)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def post(path: str, body: bytes) -> bytes:
    """A request with a body, whose answer ends with the connection."""
    return f"POST {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def links(folder: Path) -> list[str]:
    """Targets of the symbolic links in a folder."""
    return sorted(os.readlink(path) for path in folder.rglob("*") if path.is_symlink())


def serve_answer(cache: Path, answers: Sequence[bytes]) -> threading.Thread:
    """Start a server that gives each connection the next of these answers, and then ends."""
    listener = socket.socket(socket.AF_UNIX)
    with socket_address(cache) as address:
        listener.bind(address)
    listener.listen()

    def run() -> None:
        with listener:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    while not connection.recv(1 << 16).endswith(b"}"):
                        pass
                    connection.sendall(answer)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
