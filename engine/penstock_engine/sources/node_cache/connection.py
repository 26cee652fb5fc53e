"""Requests of a pod to the server of its node's cache.

`hold` imports this module and runs as long as an engine: it imports little.
"""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from penstock_engine.contract.node_cache import SOCKET_NAME
from penstock_engine.sources.node_cache.routes import SILENCE_S
from penstock_engine.sources.node_cache.socket_address import socket_address

BUSY = 503
MAX_HEAD_LINES = 64  # of an answer; the server sends four
MAX_HEAD_LINE_BYTES = 8192
MAX_REFUSAL_BYTES = 4096  # of the body of an answer that refuses
MAX_SENTENCE = 500  # characters of a server's message that are shown


class NodeCacheError(Exception):
    """A request to a node's cache has failed, or was refused.

    is_busy: the server has too many requests. is_disconnect: it is not there, or ended the connection.
    is_absent: nothing listens.
    """

    def __init__(
        self,
        sentence: str,
        *,
        is_busy: bool = False,
        is_disconnect: bool = False,
        is_absent: bool = False,
    ) -> None:
        super().__init__(sentence)
        self.is_busy, self.is_disconnect, self.is_absent = is_busy, is_disconnect, is_absent


@contextmanager
def request(mount: Path, path: str, content: Mapping[str, Any]) -> Iterator[BinaryIO]:
    """Send a request, and yield the body of the answer, which ends with the connection.

    mount: folder of the cache. Raises NodeCacheError, also for a connection that fails within the block.
    """
    body = json.dumps(content).encode()
    # An answer to HTTP/1.0 ends with its connection: its body is not in chunks.
    head = f"POST {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
            connection.settimeout(SILENCE_S)
            with socket_address(mount) as address:
                connection.connect(address)
            connection.sendall(head + body)
            with connection.makefile("rb") as answer:
                _read_head(answer)
                yield answer
    except OSError as error:
        is_absent = isinstance(error, FileNotFoundError | ConnectionRefusedError)
        raise NodeCacheError(
            _problem(error, mount), is_disconnect=True, is_absent=is_absent
        ) from error


def _read_head(answer: BinaryIO) -> None:
    """Read the head of an answer. Raises NodeCacheError if it refuses, OSError."""
    words = answer.readline(MAX_HEAD_LINE_BYTES).split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise NodeCacheError(
            "its server ended the connection without an answer", is_disconnect=True
        )
    for _ in range(MAX_HEAD_LINES):
        if answer.readline(MAX_HEAD_LINE_BYTES) in (b"\r\n", b"\n", b""):
            break
    status = int(words[1])
    if status != 200:
        sentence = _message(answer.read(MAX_REFUSAL_BYTES)) or f"its server answered {status}"
        raise NodeCacheError(sentence, is_busy=status == BUSY)


def _message(body: bytes) -> str:
    """The sentence of an answer that refuses; empty if it has none."""
    try:
        return printable(json.loads(body)["message"])
    except (ValueError, TypeError, LookupError):
        return ""


def printable(text: object) -> str:
    """The start of a server's text, with spaces in place of characters that cannot be printed."""
    return "".join(each if each.isprintable() else " " for each in str(text)[:MAX_SENTENCE])


def _problem(error: OSError, mount: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no {SOCKET_NAME}: this node runs no server of the cache"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {SOCKET_NAME}"
    if isinstance(error, TimeoutError):
        return f"its server sent nothing for {SILENCE_S:.0f} s"
    return f"{mount / SOCKET_NAME}: {os.strerror(error.errno or 0)}"
