"""PromQL queries to a Prometheus server, with limits on the time and size of the response."""

import asyncio
import io
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from penstock.clients.machine.clock import monotonic, unix_time
from penstock.core.formats.json_text import parse_json

MAX_REASON_CHARS = 300
# Fraction of the time limit that the server gets, so that its error message still arrives in time.
SERVER_TIME_SHARE = 0.8

# Errors that reading an answer may raise if the server is not Prometheus.
INVALID_ANSWER_ERRORS = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


class QueryError(Exception):
    """A query failed. The text is a sentence that begins with the server's host."""


@dataclass(frozen=True, slots=True)
class Server:
    """A Prometheus server.

    url: of its API, without /api. token_file: a bearer token, read for each query, as tokens are renewed.
    ca_file: the CA that signs its certificate; None: the CAs that the machine trusts.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.lower()


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of one response. timeout_s: for all of it."""

    timeout_s: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of a query, as in the API. at_s: the server's time, in whole seconds since the epoch."""

    result: Any
    at_s: float


async def ask(server: Server, query: str, caps: QueryLimits) -> QueryResult:
    """Run a query at the current time. Raises QueryError."""
    host = server.host
    try:
        async with asyncio.timeout(2 * caps.timeout_s):
            return await asyncio.to_thread(_ask, server, query, caps)
    except _QueryRejected as refusal:
        raise QueryError(f"{host} refuses the query: {refusal}") from refusal
    except PrometheusApiClientException as error:
        raise QueryError(
            f"{host} does not answer as Prometheus does: {error.args[0][:80]}"
        ) from error
    except (requests.RequestException, TimeoutError, OSError) as error:
        raise QueryError(f"{host} cannot be queried: {type(error).__name__}") from error
    except INVALID_ANSWER_ERRORS as error:
        raise QueryError(f"{host} does not answer as Prometheus does") from error


class _QueryRejected(Exception):
    """The server rejected the query. The text is the server's reason."""


def _ask(server: Server, query: str, caps: QueryLimits) -> QueryResult:
    headers = {}
    if server.token_file is not None:
        headers["Authorization"] = f"Bearer {server.token_file.read_text().strip()}"
    with _Session(caps) as session:
        if server.ca_file is not None:
            session.verify = str(server.ca_file)
        client = PrometheusConnect(
            url=server.url.rstrip("/"),
            headers=headers,
            session=session,
            timeout=caps.timeout_s,
            retry=Retry(0, redirect=0),
        )
        server_ms = (
            SERVER_TIME_SHARE * caps.timeout_s * 1000
        )  # PromQL's durations have no fractions
        result = client.custom_query(query, params={"timeout": f"{server_ms:.0f}ms"})
        return QueryResult(result, session.answered_at_s)


class _Session(requests.Session):
    """HTTP session with limits on the time and size of a response, without redirects and without settings
    from the environment."""

    def __init__(self, caps: QueryLimits) -> None:
        super().__init__()
        self.trust_env = False
        self.answered_at_s = unix_time()
        self._caps = caps

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        deadline_s = monotonic() + self._caps.timeout_s
        kwargs |= {"stream": True, "allow_redirects": False}
        response = super().request(*args, **kwargs)
        body = bytearray()
        while chunk := response.raw.read1(1 << 16, decode_content=True):
            body += chunk
            if len(body) > self._caps.max_bytes or monotonic() > deadline_s:
                raise requests.RequestException("the response takes too long or is too large")
        response.close()
        if response.status_code in (400, 422, 503):
            raise _QueryRejected(_reason(bytes(body)))
        if date := response.headers.get("Date"):
            self.answered_at_s = parsedate_to_datetime(date).timestamp()
        response.raw = io.BytesIO(bytes(body))
        return response


def _reason(body: bytes) -> str:
    try:
        return str(parse_json(body)["error"])[:MAX_REASON_CHARS]
    except (ValueError, KeyError, TypeError):
        return "no reason given"
