"""HTTP client of sources: ranges of files, and redirects that keep secrets from other hosts."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx2

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import SourceFile
from penstock_engine.sources.protocols.http_errors import (
    source_changed,
    status_error,
    transport_error,
)

MAX_REDIRECTS = 5
MAX_SKIPPED_BYTES = 64 << 10  # of the body of a redirect; the connection of a longer one is closed
MAX_TEXT_BYTES = 16 << 20  # of a manifest or a list
REDIRECTS = (301, 302, 303, 307, 308)
USER_AGENT = "penstock-engine"


class HttpClient:
    """Sends the requests of one source; several threads may share it.

    secret: where its credentials come from, for messages. Proxies and certificate authorities are those of
    the environment: HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE.
    """

    def __init__(self, limits: FetchLimits, secret: str) -> None:
        self._secret = secret
        self._client = httpx2.Client(
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(
                limits.read_timeout_s, connect=limits.connect_timeout_s, pool=None
            ),
            limits=httpx2.Limits(max_connections=limits.num_connections + 2),
        )

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def get(
        self,
        url: str,
        headers: Mapping[str, str],
        expected: tuple[int, ...] = (200,),
        method: str = "GET",
    ) -> Iterator[httpx2.Response]:
        """Send a request, and open the answer after redirects. Raises FetchError.

        headers: `Authorization` is not sent to another host that a redirect names. expected: statuses that
        are no errors.
        """
        first = parse_url(url)
        target, sent = first, dict(headers)
        for _ in range(MAX_REDIRECTS + 1):
            request = self._client.build_request(method, target, headers=sent)
            try:
                response = self._client.send(request, stream=True)
            except httpx2.HTTPError as error:
                raise transport_error(error, target.host) from error
            except UnicodeError as error:  # a part of the host's name is empty or too long
                raise _bad_address(target.host, is_redirect=target is not first) from error
            try:
                if response.status_code not in REDIRECTS:
                    yield self._checked(response, expected)
                    return
                length = response.headers.get("content-length", "")
                if length.isdecimal() and int(length) <= MAX_SKIPPED_BYTES:
                    response.read()  # so that the connection serves the next request
                target = _next_target(target, response.headers.get("location", ""))
                if (target.scheme, target.host, target.port) != (
                    first.scheme,
                    first.host,
                    first.port,
                ):
                    sent.pop("Authorization", None)
            except httpx2.HTTPError as error:  # while the body is read
                raise transport_error(error, target.host, in_body=True) from error
            finally:
                response.close()
        raise FetchError(
            "TooManyRedirects",
            f"{first.host} redirects more than {MAX_REDIRECTS} times: check the URI",
        )

    def _checked(self, response: httpx2.Response, expected: tuple[int, ...]) -> httpx2.Response:
        if response.status_code in expected:
            return response
        raise status_error(
            response.status_code, response.headers, response.request.url.host, self._secret
        )

    def text(self, url: str, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """The body of a small answer, and its headers. Raises FetchError."""
        with self.get(url, headers) as response:
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > MAX_TEXT_BYTES:
                    raise FetchError(
                        "UnexpectedAnswer",
                        f"{httpx2.URL(url).host} sent more than {MAX_TEXT_BYTES >> 20} MiB for a list: "
                        "check the URI",
                    )
            return bytes(body), response.headers

    @contextmanager
    def range(
        self, file: SourceFile, headers: Mapping[str, str], start: int, end: int
    ) -> Iterator[Iterator[bytes]]:
        """Open a range of a file at its location. Raises FetchError."""
        sent = {**headers}
        if file.version is not None:
            sent["If-Match"] = file.version
        if file.has_ranges:
            sent["Range"] = f"bytes={start}-{end - 1}"
        expected = (
            (206,) if file.has_ranges and (start, end) != (0, file.size_bytes) else (200, 206)
        )
        with self.get(file.location, sent, (200, *expected)) as response:
            if response.status_code not in expected:
                raise FetchError(
                    "RangesIgnored",
                    f"{response.request.url.host} sends whole files only: use a server or mirror "
                    "that supports range requests",
                )
            if response.status_code == 206:
                _check_range(response.headers.get("content-range", ""), start, file.size_bytes)
            elif start:
                yield _skip(response.iter_raw(), start)
                return
            yield response.iter_raw()


def parse_url(text: str) -> httpx2.URL:
    """The URL of a text. Raises FetchError (BadSource)."""
    try:
        return httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise _bad_address(text.partition("://")[2].partition("/")[0], is_redirect=False) from error


def _bad_address(host: str, *, is_redirect: bool) -> FetchError:
    """The error for the name of a host that no host can have."""
    if is_redirect:
        return FetchError(
            "BadRedirect", f"the server redirects to {host[:80]!r}, which is no host: check the URI"
        )
    return FetchError("BadSource", f"{host[:80]!r} is no name or address of a host: check the URI")


def _next_target(current: httpx2.URL, location: str) -> httpx2.URL:
    """The URL that a redirect names. Raises FetchError."""
    try:
        target = current.join(location)
    except (httpx2.InvalidURL, ValueError):
        target = httpx2.URL()
    if target.scheme not in ("http", "https") or not location:
        raise FetchError(
            "BadRedirect",
            f"{current.host} redirects to what is not an http or https address: check the URI",
        )
    if current.scheme == "https" and target.scheme == "http":
        raise FetchError(
            "InsecureRedirect",
            f"{current.host} redirects from https to http, where anyone could change the files",
        )
    return target


def _check_range(content_range: str, start: int, size_bytes: int) -> None:
    """Raise FetchError if an answer has another range, or the file another size."""
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range)
    if match is None or int(match[1]) != start or match[2] not in ("*", str(size_bytes)):
        raise source_changed()


def _skip(chunks: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    """The chunks after the first num_bytes, of a server without ranges, which sends each file whole."""
    for chunk in chunks:
        if num_bytes < len(chunk):
            yield chunk[num_bytes:]
        num_bytes = max(0, num_bytes - len(chunk))
