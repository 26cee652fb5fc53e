"""A proxy of the loopback interface that limits the rate of all answers together."""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

BURST_S = 0.02  # of unused rate that is kept: about the queue of a switch
PIPE_BYTES = 256 << 10  # moved at a time; 0.6 ms at 400 MiB/s
F_SETPIPE_SZ = 1031


class TokenBucket:
    """A rate that several threads share."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s, self._free_s, self._lock = bytes_per_s, 0.0, threading.Lock()

    def delay_s(self, num_bytes: int, now: float) -> float:
        """Take tokens, and return the seconds to wait until they are there."""
        with self._lock:
            self._free_s = max(self._free_s, now - BURST_S) + num_bytes / self._bytes_per_s
            return max(0.0, self._free_s - now)


@contextmanager
def rate_limited(url: str, bytes_per_s: float) -> Iterator[str]:
    """Serve a server's answers at a limited rate. Yields the URL to use instead."""
    parts = urlsplit(url)
    target, bucket = (parts.hostname or "", parts.port or 80), TokenBucket(bytes_per_s)
    clients: list[socket.socket] = []
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def accept() -> None:
            with suppress(OSError):  # the listener was shut down
                while True:
                    client, _ = listener.accept()
                    clients.append(client)
                    thread = threading.Thread(target=_connect, args=(client, target, bucket))
                    thread.start()
                    threads.append(thread)

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            _shut_down(listener)
            threads[0].join()  # no other is started after it
            _shut_down(*clients)
            for thread in threads:
                thread.join()


def _connect(client: socket.socket, target: tuple[str, int], bucket: TokenBucket) -> None:
    """Relay one connection in both directions, until either side ends."""
    with client, socket.create_connection(target) as server:
        answers = threading.Thread(target=_relay, args=(server, client, bucket))
        answers.start()
        _relay(client, server, None)
        answers.join()


def _relay(source: socket.socket, sink: socket.socket, bucket: TokenBucket | None) -> None:
    """Move bytes from one socket to the other in the kernel, and shut both down at the end."""
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, F_SETPIPE_SZ, PIPE_BYTES)
        while moved := os.splice(source.fileno(), writer, PIPE_BYTES):
            if bucket is not None:
                time.sleep(bucket.delay_s(moved, time.monotonic()))
            while moved:
                moved -= os.splice(reader, sink.fileno(), moved)
    except OSError:
        pass  # a side has closed its connection
    finally:
        os.close(reader)
        os.close(writer)
        _shut_down(source, sink)


def _shut_down(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
