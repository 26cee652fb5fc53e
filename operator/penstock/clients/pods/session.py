"""HTTP sessions for requests to pods: engines and gateways."""

import aiohttp

from penstock.clients.pods.connections import PodConnector


def pod_session() -> aiohttp.ClientSession:
    """Make a session without limits on connections, time, or a proxy of the environment.

    The caller limits the time of each request, and closes the session. The work of a request does not grow
    with the number of connections, as it does with httpx.
    """
    return aiohttp.ClientSession(
        connector=PodConnector(),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    )


async def read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes | None:
    """Read the body of a response; None if it has more bytes. The pod may be anybody's."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > max_bytes:
            return None
    return bytes(content)
