"""Models of web servers: an archive, one GGUF file, or a list of files with their digests."""

import hashlib
import netrc
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from urllib.parse import quote

from penstock_engine.contract.model_source import ModelSource
from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import Digest, Listing, SourceFile
from penstock_engine.sources.protocols.http_client import HttpClient
from penstock_engine.sources.selection import select

SECRET = "NETRC"  # noqa: S105 - the variable's name, as curl has it
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
LISTS = ("sha256sums", "sha256sums.txt", ".sha256")
# A line of `sha256sum`, with * in binary mode.
LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


class Web:
    """A file of a web server, which is a model, an archive with one, or a list of a model's files."""

    def __init__(self, source: ModelSource, limits: FetchLimits) -> None:
        self._source, self._limits = source, limits
        self._client = HttpClient(limits, SECRET)
        self._url = f"https://{source.host}/{source.path}"
        self._authorization = _authorization(source.host)

    def resolve(self) -> Listing:
        """List the files that the URI names, with their sizes. Raises FetchError."""
        name = self._source.last_name
        if name.lower().endswith(LISTS):
            return self._list()
        is_archive = name.lower().endswith(ARCHIVES)
        if not is_archive and not name.endswith(".gguf"):
            raise FetchError(
                "UnsupportedFile",
                f"{name[:80]!r} is neither a tar archive, a .gguf file nor a SHA256SUMS list: "
                "offer one of them",
            )
        if self._source.digest is None:
            raise FetchError(
                "MissingDigest",
                "an archive or a file of a web server needs its digest: add #sha256=… to the URI",
            )
        file = self._file(name, self._url, self._source.digest.removeprefix("sha256:"))
        return Listing(self._source, () if is_archive else (file,), (file,) if is_archive else ())

    def _list(self) -> Listing:
        """The files of a list that a runtime reads, with their sizes. Raises FetchError."""
        body, _ = self._client.text(self._url, self._headers())
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        folder = self._url.rpartition("/")[0]
        entries = {}
        for line in body.decode(errors="replace").splitlines():
            if not line.strip():
                continue
            match = LINE.fullmatch(line.strip())
            if match is None:
                raise FetchError(
                    "BadList",
                    "a line of the list is not a digest and a name: write it with sha256sum",
                )
            entries[match[2].removeprefix("./")] = match[1]
        named = [
            SourceFile(name, 0, f"sha256/{hexadecimal}", Digest("sha256", hexadecimal), name)
            for name, hexadecimal in entries.items()
        ]
        files = tuple(
            self._file(file.name, f"{folder}/{quote(file.name)}", entries[file.name])
            for file in select(named, self._limits)
        )
        return Listing(replace(self._source, digest=digest), files)

    def _file(self, name: str, url: str, hexadecimal: str) -> SourceFile:
        """A file with its size, by a request for its first byte. Raises FetchError."""
        headers = self._headers() | {"Range": "bytes=0-0"}
        with self._client.get(url, headers, (200, 206)) as response:
            has_ranges = response.status_code == 206
            length = (
                response.headers.get("content-range", "").rpartition("/")[2]
                if has_ranges
                else response.headers.get("content-length", "")
            )
        if not length.isdecimal():
            raise FetchError(
                "UnknownSize",
                f"{self._source.host} does not report the size of {name[:80]!r}: serve it as a file",
            )
        return SourceFile(
            name=name,
            size_bytes=int(length),
            blob=f"sha256/{hexadecimal}",
            digest=Digest("sha256", hexadecimal),
            location=url,
            has_ranges=has_ranges,
        )

    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._authorization} if self._authorization else {}

    def read(
        self, file: SourceFile, start: int, end: int
    ) -> AbstractContextManager[Iterator[bytes]]:
        """Open a range of a file. Raises FetchError."""
        return self._client.range(file, self._headers(), start, end)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _authorization(host: str) -> str | None:
    """The header of the user and password that the file NETRC has for a host. Raises FetchError."""
    import base64

    path = os.environ.get(SECRET)
    if not path:
        return None
    try:
        entry = netrc.netrc(path).authenticators(host.partition(":")[0])
    except (OSError, netrc.NetrcParseError) as error:
        raise FetchError("BadCredentialsFile", f"the file of {SECRET} cannot be read") from error
    if entry is None:
        return None
    return f"Basic {base64.b64encode(f'{entry[0]}:{entry[2]}'.encode()).decode()}"
