"""HTTP sessions for requests to pods: engines and gateways."""

import aiohttp

# Engines close an idle connection after 5 s (uvicorn's default): the client must do it first.
IDLE_CONNECTION_S = 4.0


def pod_session() -> aiohttp.ClientSession:
    """Make a session without limits on connections, time, or a proxy of the environment.

    The caller limits the time of each request, and closes the session. The work of a request does not grow
    with the number of connections, as it does with httpx.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
    )
