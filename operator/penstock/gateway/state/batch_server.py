"""The batch server, to which the gateway relays requests about files and batches."""

from collections.abc import AsyncIterator, Mapping
from typing import Final

import aiohttp

from penstock.core.batches.shared_token import TENANT_HEADER, SharedToken

# s: for a connection, to a server of the same cluster.
CONNECT_TIMEOUT_S: Final = 5.0
# Connections at a time. Each upload has one.
MAX_CONNECTIONS = 64


class BatchServer:
    """Connections to the batch server. url: its URL. token: that it shares with gateways."""

    def __init__(self, url: str, token: SharedToken) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        method: str,
        path: str,
        query: str,
        tenant: str,
        headers: Mapping[str, str],
        body: AsyncIterator[bytes] | None,
    ) -> aiohttp.ClientResponse:
        """Send a request on behalf of a tenant. Raises aiohttp.ClientError, OSError."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                auto_decompress=False,
            )
        own = {"Authorization": self._token.authorization, TENANT_HEADER: tenant}
        return await self._session.request(
            method,
            f"{self._url}{path}{query and '?'}{query}",
            headers={**headers, **own},
            data=body,
            allow_redirects=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
