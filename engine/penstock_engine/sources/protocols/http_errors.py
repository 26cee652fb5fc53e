"""Turns answers and failures of HTTP into errors of a fetch."""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from penstock_engine.sources.errors import FetchError

MAX_RETRY_AFTER_S = 86400.0  # longer ones have a wrong unit, such as milliseconds


def status_error(status: int, headers: Mapping[str, str], host: str, secret: str) -> FetchError:
    """The error for an answer with an unexpected status.

    host: of the server, for the message. secret: where its credentials come from, such as HF_TOKEN.
    """
    if status == 401:
        return FetchError(
            "Unauthorized",
            f"{host} asks for credentials, or refuses those of {secret}: set {secret}",
        )
    if status == 403:
        return FetchError(
            "Forbidden",
            f"{host} refuses read access with the credentials of {secret}: request access for them",
        )
    if status in (404, 410):
        return FetchError("NotFound", f"{host} has nothing at this place: check the URI")
    if status == 412:
        return source_changed()
    if status == 416:
        return FetchError(
            "WrongSize", f"{host} has a shorter file than it listed: it changed, so fetch again"
        )
    if status == 429:
        return FetchError(
            "RateLimited",
            f"{host} limits requests: set {secret} for a higher limit, or use a mirror",
            is_retryable=True,
            retry_after_s=retry_after_s(headers),
        )
    if status in (408, 425) or status >= 500:
        return FetchError(
            "ServerError",
            f"{host} answered with status {status}: wait, or use a mirror",
            is_retryable=True,
            retry_after_s=retry_after_s(headers),
        )
    return FetchError(
        "UnexpectedAnswer",
        f"{host} answered with status {status}: check that it serves models, and the URI",
    )


def source_changed() -> FetchError:
    """The error for a file that is no longer the one that was listed."""
    return FetchError(
        "SourceChanged",
        "a file changed at the source while it was fetched: fetch again, and keep each version of a "
        "model at a place of its own",
        is_retryable=True,
    )


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a server asks to wait, by its Retry-After header; None: it does not.

    now: for a header with a date; None: the current time.
    """
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(float(text), MAX_RETRY_AFTER_S)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        return None
    seconds = (date - (now or datetime.now(UTC))).total_seconds()
    return min(max(0.0, seconds), MAX_RETRY_AFTER_S)


def transport_error(error: httpx2.HTTPError, host: str, *, in_body: bool = False) -> FetchError:
    """The error for a request without a complete answer.

    host: of the server, for the message. in_body: whether the answer had begun.
    """
    if in_body and isinstance(error, httpx2.RemoteProtocolError):
        return FetchError(
            "Truncated",
            f"{host} closed the connection within a file: a proxy cuts it, or the server is overloaded",
            is_retryable=True,
        )
    if isinstance(error, httpx2.ConnectError) and _is_of_certificate(error):
        return FetchError(
            "UntrustedCertificate",
            f"the certificate of {host} is not trusted: add its authority to the file of SSL_CERT_FILE",
        )
    if isinstance(error, httpx2.ProxyError):
        return FetchError(
            "ProxyFailed", "the proxy refused the connection: check HTTPS_PROXY", is_retryable=True
        )
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return FetchError(
            "Unreachable",
            f"{host} cannot be reached: check its name, the network policies and HTTPS_PROXY",
            is_retryable=True,
        )
    if isinstance(error, httpx2.TimeoutException):
        return FetchError(
            "NoResponse",
            f"{host} took the request and sends nothing: wait, or use a mirror",
            is_retryable=True,
        )
    return FetchError(
        "ConnectionLost", f"{host} closed the connection before the answer", is_retryable=True
    )


def _is_of_certificate(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
