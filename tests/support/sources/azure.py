"""A server of Azure's blobs on the loopback interface: azurite."""

import base64
import datetime
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from tests.support.sources.server_process import server_process
from tests.support.tools.azurite import ensure_azurite

# The account that azurite has from the start.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-12-02"


@contextmanager
def azure_server(folder: Path) -> Iterator[str]:
    """Serve blobs that are kept in a folder. Yields the URL of the account."""
    binary = ensure_azurite(lambda _: None)

    def command(port: int) -> list[str | Path]:
        return [
            binary, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", folder,
            "--blobHost", "127.0.0.1", "--blobPort", str(port),
        ]  # fmt: skip

    with server_process(command) as port:
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"


def make_container(url: str, name: str) -> None:
    """Make an empty container. url: of the account."""
    now = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": now, "x-ms-version": VERSION}
    lines = ["PUT", *[""] * 11, *(f"{key}:{value}" for key, value in headers.items())]
    lines += [f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"]
    digest = hmac.new(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
    authorization = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    httpx2.put(
        f"{url}/{name}?restype=container", headers={**headers, "Authorization": authorization}
    ).raise_for_status()
