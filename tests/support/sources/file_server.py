"""A web server of files with range requests, and with faults, in threads of this process."""

import contextlib
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.sources.faults import Fault, Faults

TRICKLE_S, TRICKLE_BYTES = 0.05, 16


class FileServer:
    """A server. requests: (method, path, headers) of each request that came. sent_bytes: of all bodies."""

    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.faults = Faults()
        self.requests: list[tuple[str, str, Mapping[str, str]]] = []
        self.stopped = threading.Event()
        self.delay_s = 0.0  # between blocks of a file
        self.sent_bytes = 0
        self._counting = threading.Lock()
        server = self

        class Handler(_Handler):
            files = server

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.contents: dict[str, bytes] = {}  # by path
        self.host = host
        self.url = f"{'http' if tls is None else 'https'}://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    def __enter__(self) -> "FileServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, handler: "_Handler", path: str) -> None:
        """Answer a request; a server of other routes overrides it."""
        content = self.contents.get(path)
        if content is None:
            handler.send_status(404)
        else:
            handler.send_file(content, {})

    def count(self, num_bytes: int) -> None:
        with self._counting:
            self.sent_bytes += num_bytes

    def paths(self, text: str = "") -> list[str]:
        """Paths of the requests so far, of those with a text in them."""
        return [path for _, path, _ in self.requests if text in path]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that end a connection early are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    files: FileServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.files.requests.append((self.command, self.path, dict(self.headers)))
        fault = self.files.faults.take(self.path)
        self.fault = fault
        with contextlib.suppress(ConnectionError):
            if fault is None or fault.kind in (
                "whole",
                "corrupt",
                "truncate",
                "trickle",
                "hang_in_body",
                "longer",
            ):
                self.files.answer(self, self.path)
            else:
                self._fail(fault)

    do_HEAD = do_GET

    def _fail(self, fault: Fault) -> None:
        match fault.kind:
            case "status":
                self.send_status(fault.status, fault.headers)
            case "redirect":
                self.send_status(302, {"Location": fault.location})
            case "drop":
                self.close_connection = True
            case _:
                self.files.stopped.wait(60)
                self.close_connection = True

    def send_status(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Answer without a body."""
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_file(self, content: bytes, headers: Mapping[str, str]) -> None:
        """Answer with a file, or the range of it that was asked for, as this request's fault says."""
        fault = self.fault.kind if self.fault else ""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if (match := self.headers.get("If-Match")) and match != headers.get("ETag"):
            self.send_status(412)
            return
        body, status, extra = content, 200, {}
        if found and fault != "whole":
            start, end = int(found[1]), int(found[2] or len(content) - 1)
            if start >= len(content):
                self.send_status(416, {"Content-Range": f"bytes */{len(content)}"})
                return
            body, status = content[start : end + 1], 206
            extra = {"Content-Range": f"bytes {start}-{start + len(body) - 1}/{len(content)}"}
        if fault == "corrupt":
            body = bytes([body[0] ^ 1]) + body[1:]
        if fault == "longer":
            body += b"more"
        self.send_response(status)
        for name, value in {**headers, **extra, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            for block in self._blocks(body, fault):
                self.wfile.write(block)
                self.files.count(len(block))

    def _blocks(self, body: bytes, fault: str) -> Iterator[bytes]:
        if fault in ("truncate", "hang_in_body"):
            yield body[: len(body) // 2]
            if fault == "hang_in_body":
                self.files.stopped.wait(60)
            self.close_connection = True
        elif fault == "trickle":
            for start in range(0, len(body), TRICKLE_BYTES):
                yield body[start : start + TRICKLE_BYTES]
                if self.files.stopped.wait(TRICKLE_S):
                    return
        else:
            for start in range(0, len(body), 1 << 16):
                yield body[start : start + (1 << 16)]
                if self.files.delay_s:
                    self.files.stopped.wait(self.files.delay_s)
