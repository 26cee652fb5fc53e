"""A server of Google Cloud Storage on the loopback interface: fake-gcs-server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx2
from tests.support.sources.server_process import server_process
from tests.support.tools.object_store_server import ensure_fake_gcs


@contextmanager
def gcs_server() -> Iterator[str]:
    """Serve buckets that are kept in memory. Yields the URL."""
    binary = ensure_fake_gcs(lambda _: None)

    def command(port: int) -> list[str | Path]:
        address = f"127.0.0.1:{port}"
        return [
            binary, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory",
            "-public-host", address, "-external-url", f"http://{address}",
        ]  # fmt: skip

    with server_process(command) as port:
        yield f"http://127.0.0.1:{port}"


def make_bucket(url: str, name: str) -> None:
    httpx2.post(f"{url}/storage/v1/b?project=test", json={"name": name}).raise_for_status()


def put_object(url: str, bucket: str, key: str, data: bytes) -> None:
    """Upload an object. The library would ask for credentials first, which this server has none of."""
    target = f"{url}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}"
    httpx2.post(target, content=data).raise_for_status()
