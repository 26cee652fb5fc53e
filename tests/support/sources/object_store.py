"""A server of S3 on the loopback interface: versitygw on a folder."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.tools.object_store_server import ensure_versitygw

KEY, SECRET, REGION = "test-key", "test-secret", "eu-test-1"


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Serve the folders of a folder as buckets. Yields the URL."""
    binary = ensure_versitygw(lambda _: None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [
            binary, "--access", KEY, "--secret", SECRET, "--region", REGION, "--port", f"127.0.0.1:{port}",
            "--quiet", "posix", folder,
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    for _ in range(300):
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError("the server does not listen")
