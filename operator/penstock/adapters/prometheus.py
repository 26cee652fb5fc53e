"""Numbers from Prometheus servers, one at a time, with caps on what an answer may take."""

import asyncio
import io
import json
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from penstock.adapters.clock import monotonic
from penstock.core.canary.metric_gate import Answer, Unreadable

# For all of one answer; a server is told to give up its query as soon.
TIMEOUT_S = 5.0
MAX_BYTES = 256 << 10
MAX_SAID_CHARS = 300


class Refused(Exception):
    """The server's own words on why it does not answer."""


class Prometheus:
    """hosts: the only ones that are asked, as HOST or HOST:PORT. Whoever may write a service could
    have the operator ask anything in its network else."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)

    async def ask(self, server: str, query: str) -> Answer:
        """Does not raise: what goes wrong is the answer."""
        host = urlsplit(server).netloc.lower()
        if host not in self._hosts:
            return Unreadable(
                f"the operator may not ask {host}: start it with --metrics-host={host}, or change "
                "the metric's server"
            )
        try:
            async with asyncio.timeout(2 * TIMEOUT_S):
                return _number(await asyncio.to_thread(_ask, server.rstrip("/"), query))
        except Refused as refusal:
            return Unreadable(f"{host} refuses the metric's query: {refusal}")
        except PrometheusApiClientException as error:
            return Unreadable(f"{host} does not answer as Prometheus does: {error.args[0][:80]}")
        except (requests.RequestException, TimeoutError, OSError) as error:
            return Unreadable(f"{host} cannot be asked: {type(error).__name__}")
        except (ValueError, KeyError, TypeError, AttributeError):
            return Unreadable(f"{host} does not answer as Prometheus does; see the metric's server")


def _ask(server: str, query: str) -> Any:
    with _Session() as session:
        client = PrometheusConnect(
            url=server, session=session, timeout=TIMEOUT_S, retry=Retry(0, redirect=0)
        )
        return client.custom_query(query, params={"timeout": f"{TIMEOUT_S:g}s"})


class _Session(requests.Session):
    """Reads an answer in bounds of time and size, follows no redirect, takes nothing from the
    environment."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        deadline_s = monotonic() + TIMEOUT_S
        kwargs |= {"stream": True, "allow_redirects": False}
        response = super().request(*args, **kwargs)
        body = bytearray()
        while chunk := response.raw.read1(1 << 16, decode_content=True):
            body += chunk
            if len(body) > MAX_BYTES or monotonic() > deadline_s:
                raise requests.RequestException("the answer takes too long, or too much")
        response.close()
        if response.status_code in (400, 422, 503):
            raise Refused(_said(bytes(body)))
        response.raw = io.BytesIO(bytes(body))
        return response


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:MAX_SAID_CHARS]
    except (ValueError, KeyError, TypeError):
        return "it does not say why"


def _number(result: Any) -> Answer:
    """Of a scalar, or of a vector with one series."""
    if not result:
        return None
    if not isinstance(result[0], dict):
        value = float(result[1])
    elif len(result) > 1:
        return Unreadable(
            f"the metric's query gives {len(result)} series: put sum(...), max(...) or the like "
            "around it"
        )
    elif "value" not in result[0]:
        return Unreadable("the metric's query gives a range: it must give one number")
    else:
        value = float(result[0]["value"][1])
    return None if value != value else value
