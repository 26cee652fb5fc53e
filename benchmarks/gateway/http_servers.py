"""Checks an ASGI server with hostile connections, and measures its CPU time per request.

    python -m benchmarks.gateway.http_servers COMMAND

COMMAND is such as "uvicorn http_servers:app --port {port} --http h11 --no-access-log" or
"granian --interface asgi http_servers:app --port {port} --http 1". It runs in this folder with a
free port. Only uvicorn is a dependency of Penstock: install other servers, and aiohttp and psutil, which
this file needs.
"""

import argparse
import asyncio
import json
import shlex
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import psutil

START_TIMEOUT_S = 10.0
PAUSE_S = 0.3
HEAD_PATIENCE_S = 40.0
TRAILER_BYTES = 100 << 20
SECONDS, CLIENTS, EVENTS = 2.0, 16, 50
EVENT = b'data: {"choices":[{"delta":{"content":" a"}}]}\n\n'

# Requests that the application received: path, values of x-tenant, body bytes, outcome.
SEEN: list[dict[str, Any]] = []


async def app(scope: dict, receive: Any, send: Any) -> None:
    """Answer with a stream or a word. /seen returns the received requests; /hang waits for a disconnect."""
    if scope["type"] != "http":
        return
    seen = {"path": scope["path"], "body_bytes": 0, "outcome": "answered", "tenants": []}
    if scope["path"] != "/seen":
        SEEN.append(seen)
    while True:
        message = await receive()
        seen["body_bytes"] += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    seen["tenants"] = [v.decode() for k, v in scope["headers"] if k.lower() == b"x-tenant"]
    if scope["path"] == "/hang":
        seen["outcome"] = "waits"
        await receive()
        seen["outcome"] = "left"
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/stream":
        for _ in range(EVENTS):
            await send({"type": "http.response.body", "body": EVENT, "more_body": True})
    body = json.dumps(SEEN).encode() if scope["path"] == "/seen" else b"ok"
    await send({"type": "http.response.body", "body": body, "more_body": False})


class Prober:
    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=3)

    def exchange(self, *pieces: bytes) -> bytes:
        """Send bytes. Returns all bytes until the connection ends or is silent."""
        with self.connect() as connection:
            got = b""
            with suppress(OSError):
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(PAUSE_S)
                while data := connection.recv(65_536):
                    got += data
            return got

    def received(self, path: str) -> list[dict[str, Any]]:
        answer = self.exchange(b"GET /seen HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        text = answer[answer.index(b"[{") : answer.rindex(b"}]") + 2]
        return [one for one in json.loads(text) if one["path"] == path]

    def upgrade(self) -> str:
        head = b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: %d\r\n\r\n"
        body = _head("/smuggled") + b"content-length: 0\r\n\r\n" + b"a" * 100_000
        got = self.exchange(_head("/upgrade") + head % len(body), body)
        (seen,) = self.received("/upgrade")
        smuggled = len(self.received("/smuggled"))
        return (
            f"{got.count(b'HTTP/1.1')} answers, {seen['body_bytes']} of {len(body)} body bytes, "
            f"{smuggled} smuggled"
        )

    def trailer(self) -> str:
        chunked = b"x-tenant: alice\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n"
        self.exchange(_head("/trailer") + chunked, b"0\r\nx-tenant: mallory\r\n\r\n")
        return f"tenants {self.received('/trailer')[0]['tenants']}"

    def endless_trailer(self) -> str:
        sent_bytes, line = 0, b"x: %s\r\n" % (b"y" * 1000) * 100
        with self.connect() as connection:
            connection.sendall(_head("/endless") + b"transfer-encoding: chunked\r\n\r\n0\r\n")
            with suppress(OSError):
                while sent_bytes < TRAILER_BYTES:
                    connection.sendall(line)
                    sent_bytes += len(line)
        return f"{sent_bytes >> 20} MiB sent of {TRAILER_BYTES >> 20}"

    def pipelined(self) -> str:
        one = b"content-length: 2\r\n\r\nhi"
        with self.connect() as connection:
            connection.sendall(_head("/hang") + one)
            time.sleep(PAUSE_S)
            connection.sendall(_head("/second") + one)
            time.sleep(PAUSE_S)
        time.sleep(2)
        return "its leaving is " + (
            "seen" if self.received("/hang")[0]["outcome"] == "left" else "hidden"
        )

    def two_lengths(self) -> str:
        chunked = b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        return f"status {self.exchange(_head('/both') + chunked).split()[1].decode()}"

    def slow_head(self) -> str:
        with self.connect() as connection:
            connection.settimeout(HEAD_PATIENCE_S)
            connection.sendall(b"POST / HTTP/1.1\r\n")
            began_s = time.monotonic()
            try:
                connection.recv(100)
            except TimeoutError:
                return f"open after {HEAD_PATIENCE_S:g} s"
            return f"closed after {time.monotonic() - began_s:.0f} s"


def _head(path: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n".encode()


async def cpu_ms(port: int, path: str, watched: psutil.Process) -> float:
    """CPU time of the server's processes per request, in milliseconds."""

    def spent_s() -> float:
        everyone = [watched, *watched.children(recursive=True)]
        return sum(sum(each.cpu_times()[:2]) for each in everyone)

    count, before_s, end_s = 0, spent_s(), time.monotonic() + SECONDS

    async def client(session: aiohttp.ClientSession) -> None:
        nonlocal count
        while time.monotonic() < end_s:
            async with session.post(f"http://127.0.0.1:{port}{path}", json={"x": "y" * 400}) as got:
                await got.read()
            count += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(CLIENTS)))
    return (spent_s() - before_s) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", help="of the server, with {port}")
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = shlex.split(options.command.format(port=port))
    server = subprocess.Popen(
        command, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        prober, end_s = Prober(port), time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                prober.connect().close()
                break
            except OSError:
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.1)
        print(options.command)
        for path in ("/whole", "/stream"):
            each_ms = asyncio.run(cpu_ms(port, path, psutil.Process(server.pid)))
            print(f"  {path[1:]:16} {each_ms:.3f} ms of processor for each")
        for probe in (
            prober.upgrade, prober.trailer, prober.endless_trailer, prober.pipelined,
            prober.two_lengths, prober.slow_head,
        ):  # fmt: skip
            print(f"  {probe.__name__:16} {probe()}", flush=True)
        print(f"  resident         {psutil.Process(server.pid).memory_info().rss >> 20} MiB")
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
