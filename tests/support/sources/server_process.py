"""Runs a server of a test on a free port of the loopback interface."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def server_process(
    command: Callable[[int], Sequence[str | Path]],
) -> Iterator[int]:
    """Run a server until the end of the block. Yields its port, once it listens.

    command: its command line on a port.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(process, port)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    for _ in range(600):
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError("the server does not listen")
