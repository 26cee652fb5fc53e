"""The long poll by which the operator learns of requests for services at zero."""

import asyncio

import aiohttp

from penstock.clients.pods.session import pod_session, read_bounded

PATH = "/penstock/wake"
# Parameter with the token of the last answer.
TOKEN = "token"  # noqa: S105 - no secret
# Time after which a gateway answers without a request, in seconds: both sides notice a lost connection.
POLL_S = 20.0
# Time limit of one poll, in seconds.
TIMEOUT_S = POLL_S + 5
MAX_TOKEN_BYTES = 256


class WakePoll:
    """Polls gateways over one session. Addresses are "host:port"."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def wait(self, address: str, token: str) -> str | None:
        """Wait until the gateway's token differs from the given one, or POLL_S. Returns the gateway's.

        None if the gateway does not answer, or does not know the poll.
        """
        if self._session is None:
            self._session = pod_session()
        url = f"http://{address}{PATH}"
        try:
            async with (
                asyncio.timeout(TIMEOUT_S),
                self._session.get(url, params={TOKEN: token}, allow_redirects=False) as response,
            ):
                content = await read_bounded(response, MAX_TOKEN_BYTES)
                if response.status != 200 or content is None:
                    return None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        return content.decode(errors="replace")
