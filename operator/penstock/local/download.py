"""Downloads official release binaries, and verifies their published checksums."""

import hashlib
import io
import platform
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from penstock.local.versions import ETCD, KUBERNETES

KUBERNETES_RELEASES = "https://dl.k8s.io/release"
ETCD_RELEASES = "https://github.com/etcd-io/etcd/releases/download"

# A short connect time-out: without the site, the binaries are built from source.
TIMEOUT = httpx.Timeout(60, connect=4)


class DownloadFailed(Exception):
    """A release could not be downloaded or verified; the text is one line."""


def machine() -> str:
    """Return this machine's architecture as release file names spell it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def download(destination: Path, names: Sequence[str], say: Callable[[str], None]) -> None:
    """Download the binaries `names` into `destination`, and verify their published checksums.

    Raises DownloadFailed.
    """
    for name in names:
        if name == "etcd":
            say(f"downloading etcd {ETCD}")
            archive = f"etcd-v{ETCD}-linux-{machine()}.tar.gz"
            folder = f"{ETCD_RELEASES}/v{ETCD}"
            download_archived(folder, archive, "SHA256SUMS", destination / "etcd")
        else:
            say(f"downloading {name} {KUBERNETES}")
            url = f"{KUBERNETES_RELEASES}/v{KUBERNETES}/bin/linux/{machine()}/{name}"
            content = _get(url)
            verify(content, _get(f"{url}.sha256").decode(), name)
            _write(destination / name, content)


def download_archived(folder: str, archive: str, sums: str, binary: Path) -> None:
    """Download a .tar.gz and extract the file named like `binary` to that path. Raises DownloadFailed.

    folder: URL of the release. sums: name of its file with the checksums.
    """
    content = _get(f"{folder}/{archive}")
    published = _get(f"{folder}/{sums}").decode()
    line = next((line for line in published.splitlines() if line.endswith(archive)), "")
    verify(content, line, archive)
    _write(binary, member(content, f"/{binary.name}"))


def verify(content: bytes, published: str, name: str) -> None:
    """Check that `published` begins with the SHA-256 of `content`. Raises DownloadFailed."""
    words = published.split()
    if not words or words[0].lower() != hashlib.sha256(content).hexdigest():
        raise DownloadFailed(f"the checksum of {name} does not match the published one")


def member(archive: bytes, suffix: str) -> bytes:
    """Return the content of the first regular file in a .tar.gz whose name ends with `suffix`."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            if entry.isfile() and entry.name.endswith(suffix):
                file = tar.extractfile(entry)
                assert file is not None
                return file.read()
    raise DownloadFailed(f"the archive holds no file {suffix}")


def _get(url: str) -> bytes:
    try:
        answer = httpx.get(url, timeout=TIMEOUT, follow_redirects=True)
    except httpx.HTTPError as error:
        cause = type(error).__name__
        raise DownloadFailed(f"the release site cannot be reached ({cause})") from error
    if answer.status_code != 200:
        raise DownloadFailed(f"the release site answered {answer.status_code}")
    return answer.content


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)
