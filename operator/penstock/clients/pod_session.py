"""HTTP sessions for requests to pods: engines and gateways."""

import aiohttp

from penstock.clients.pod_connections import PodConnector


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
