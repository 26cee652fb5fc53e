"""A server of S3 on the loopback interface: versitygw on a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.sources.certificates import CERTIFICATE
from tests.support.sources.certificates import KEY as PRIVATE_KEY
from tests.support.sources.server_process import server_process
from tests.support.tools.object_store_server import ensure_versitygw

KEY, SECRET, REGION = "test-key", "test-secret", "eu-test-1"


@contextmanager
def s3_server(folder: Path, tls: Path | None = None) -> Iterator[str]:
    """Serve the folders of a folder as buckets. Yields the URL. tls: folder of `loopback_certificate`."""
    binary = ensure_versitygw(lambda _: None)
    folder.mkdir(exist_ok=True)

    flags = [] if tls is None else ["--cert", tls / CERTIFICATE, "--key", tls / PRIVATE_KEY]

    def command(port: int) -> list[str | Path]:
        return [
            binary, "--access", KEY, "--secret", SECRET, "--region", REGION, "--port", f"127.0.0.1:{port}",
            "--quiet", *flags, "posix", folder,
        ]  # fmt: skip

    with server_process(command) as port:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
