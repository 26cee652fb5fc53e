"""Sends lines to the gateway, on behalf of their tenants."""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp

from penstock.batch.settings import BatchSettings
from penstock.core.batches.input_line import InputLine
from penstock.core.batches.records import Batch
from penstock.core.batches.results import Answer
from penstock.core.batches.shared_token import SharedToken
from penstock.errors import CertificateError
from penstock_engine.contract.wire import REQUEST_ID_HEADER

logger = logging.getLogger(__name__)

# s: for a connection to the gateway, which is in the same cluster.
CONNECT_TIMEOUT_S: Final = 5.0
# Longer answers are not kept: the gateway holds 8 MiB of one.
MAX_ANSWER_BYTES = 16 << 20
TOO_LONG = b'{"error": {"message": "the answer is longer than 16 MiB", "code": "answer_too_long"}}'


def authorities(file: Path | None) -> ssl.SSLContext | bool:
    """The authorities of a PEM file; True for those of the system, also if there is no file.

    Raises CertificateError.
    """
    if file is None or not file.exists():
        return True
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError):
        raise CertificateError(f"{file} has no certificates of authorities in PEM format") from None


class LineClient:
    """A pool of connections to the gateway. token: that it shares with this server.

    Raises CertificateError.
    """

    def __init__(self, settings: BatchSettings, token: SharedToken) -> None:
        self._url = settings.gateway_url.rstrip("/")
        self._token = token
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.max_lines, ssl=authorities(settings.gateway_ca_file)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=settings.line_timeout_s, sock_connect=CONNECT_TIMEOUT_S
            ),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def send(
        self, batch: Batch, line: InputLine, take_memory: Callable[[int], bool]
    ) -> Answer | None:
        """Send a line. Returns the answer; None if there was none or only a part of it.

        take_memory: takes so many bytes for the answer, and returns False if there are too few.
        """
        headers = self._token.headers(batch.tenant) | {"Content-Type": "application/json"}
        url = f"{self._url}{batch.endpoint}"
        try:
            async with self._session.post(
                url, data=line.body, headers=headers, allow_redirects=False
            ) as response:
                return await _read(response, take_memory)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            logger.debug("a line of %s got no answer: %s", batch.id, type(error).__name__)
            return None


async def _read(
    response: aiohttp.ClientResponse, take_memory: Callable[[int], bool]
) -> Answer | None:
    request_id = response.headers.get(REQUEST_ID_HEADER, "")[:128]
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            return Answer(413, TOO_LONG, request_id)
        if not take_memory(len(chunk)):
            return None
    retry_after = response.headers.get("Retry-After", "")
    is_number = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10
    return Answer(
        response.status, bytes(body), request_id, float(retry_after) if is_number else None
    )
