"""One query to a Prometheus server, with caps on what the answer may take."""

import asyncio
import io
import json
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from penstock.clients.clock import monotonic, wall

MAX_SAID_CHARS = 300
# Of the time that an answer may take, what the server itself may: so that it can still say why not.
SERVERS_SHARE = 0.8


class Unanswered(Exception):
    """What went wrong, as a sentence that begins with the server's host."""


@dataclass(frozen=True, slots=True)
class Server:
    """url: of its API, as far as /api. token_file: a bearer token, read for each query, as tokens are
    renewed. ca_file: the CA that signs its certificate; without one, the CAs that the machine trusts."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.lower()


@dataclass(frozen=True, slots=True)
class Caps:
    """timeout_s: for all of one answer."""

    timeout_s: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Answered:
    """result: as the API has it. at_s: by the server's clock, in whole seconds since the epoch."""

    result: Any
    at_s: float


async def ask(server: Server, query: str, caps: Caps) -> Answered:
    """The query as of now. Raises Unanswered."""
    host = server.host
    try:
        async with asyncio.timeout(2 * caps.timeout_s):
            return await asyncio.to_thread(_ask, server, query, caps)
    except _Refused as refusal:
        raise Unanswered(f"{host} refuses the query: {refusal}") from refusal
    except PrometheusApiClientException as error:
        raise Unanswered(
            f"{host} does not answer as Prometheus does: {error.args[0][:80]}"
        ) from error
    except (requests.RequestException, TimeoutError, OSError) as error:
        raise Unanswered(f"{host} cannot be asked: {type(error).__name__}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unanswered(f"{host} does not answer as Prometheus does") from error


class _Refused(Exception):
    """The server's own words on why it does not answer."""


def _ask(server: Server, query: str, caps: Caps) -> Answered:
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
        theirs_ms = SERVERS_SHARE * caps.timeout_s * 1000  # PromQL's durations have no fractions
        result = client.custom_query(query, params={"timeout": f"{theirs_ms:.0f}ms"})
        return Answered(result, session.answered_at_s)


class _Session(requests.Session):
    """Reads an answer in bounds of time and size, follows no redirect, takes nothing from the
    environment."""

    def __init__(self, caps: Caps) -> None:
        super().__init__()
        self.trust_env = False
        self.answered_at_s = wall()
        self._caps = caps

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        deadline_s = monotonic() + self._caps.timeout_s
        kwargs |= {"stream": True, "allow_redirects": False}
        response = super().request(*args, **kwargs)
        body = bytearray()
        while chunk := response.raw.read1(1 << 16, decode_content=True):
            body += chunk
            if len(body) > self._caps.max_bytes or monotonic() > deadline_s:
                raise requests.RequestException("the answer takes too long, or too much")
        response.close()
        if response.status_code in (400, 422, 503):
            raise _Refused(_said(bytes(body)))
        if date := response.headers.get("Date"):
            self.answered_at_s = parsedate_to_datetime(date).timestamp()
        response.raw = io.BytesIO(bytes(body))
        return response


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:MAX_SAID_CHARS]
    except (ValueError, KeyError, TypeError):
        return "it does not say why"
