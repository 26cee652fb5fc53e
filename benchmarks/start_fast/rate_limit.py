"""A proxy of the loopback interface that limits the rate of all answers together."""

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
    target = (urlsplit(url).hostname, urlsplit(url).port)
    bucket = TokenBucket(bytes_per_s)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def accept() -> None:
            with suppress(OSError):  # the listener was closed
                while True:
                    client, _ = listener.accept()
                    server = socket.create_connection(target)
                    for source, sink, limit in ((client, server, None), (server, client, bucket)):
                        threading.Thread(
                            target=_relay, args=(source, sink, limit), daemon=True
                        ).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _relay(source: socket.socket, sink: socket.socket, bucket: TokenBucket | None) -> None:
    """Move bytes from one socket to the other in the kernel, until either side ends."""
    import fcntl

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
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
