"""The batch server, to which the gateway relays requests about files and batches."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import aiohttp

from penstock.core.batches.shared_token import SharedToken
from penstock.gateway.apis.errors import RETRY_AFTER_S, RequestError
from penstock_engine.http.fair_limit import FairLimit

# s: for a connection, to a server of the same cluster.
CONNECT_TIMEOUT_S: Final = 5.0
# Connections at a time. Each upload has one, and each file that a client reads; both may take half an hour.
MAX_CONNECTIONS = 256


class BatchServer:
    """Connections to the batch server. url: its URL. token: that it shares with gateways."""

    def __init__(self, url: str, token: SharedToken) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._connections = FairLimit(MAX_CONNECTIONS)

    @contextmanager
    def connection(self, tenant: str) -> Iterator[None]:
        """Hold a connection while the block runs. Raises RequestError if the tenant has its share already."""
        if not self._connections.take(tenant, 1):
            message = "too many requests about files and batches are open: try again later"
            raise RequestError(503, message, retry_after_s=RETRY_AFTER_S, reason="connections")
        try:
            yield
        finally:
            self._connections.give_back(tenant, 1)

    async def send(
        self,
        method: str,
        path: str,
        query: str,
        tenant: str,
        headers: Mapping[str, str],
        body: AsyncIterator[bytes] | None,
    ) -> aiohttp.ClientResponse:
        """Send a request of a tenant, for which it holds a connection.

        Raises aiohttp.ClientError, OSError.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # `connection` has the bound
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                auto_decompress=False,
            )
        return await self._session.request(
            method,
            f"{self._url}{path}{query and '?'}{query}",
            headers={**headers, **self._token.headers(tenant)},
            data=body,
            allow_redirects=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
