"""Reads the bodies of requests, up to limits on their size, their time and their memory together."""

import asyncio

from fastapi import Request
from starlette.requests import ClientDisconnect

from penstock_engine.http.fair_limit import FairLimit
from penstock_engine.server.transport.errors import RequestError

MAX_BODY_BYTES = 8 * 2**20
BODY_TIMEOUT_S = 30.0
# Bytes of the bodies that are arriving: 32 of the largest size. Clients that send slowly hold this memory
# for as long as BODY_TIMEOUT_S.
MAX_ARRIVING_BYTES = 32 * MAX_BODY_BYTES


class ClientDisconnected(Exception):
    """The client has closed its connection."""


class ArrivingBodies:
    """The bodies that are being read.

    max_bytes: bound on all of them together, of which the client addresses have fair parts; less in tests.
    """

    def __init__(self, max_bytes: int = MAX_ARRIVING_BYTES) -> None:
        self._limit = FairLimit(max_bytes)

    async def read(self, http: Request) -> bytes:
        """Reads the body of a request. Raises RequestError, ClientDisconnected."""
        too_large = RequestError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")
        if int(http.headers.get("content-length", 0)) > MAX_BODY_BYTES:
            raise too_large
        address = "" if http.client is None else http.client.host
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for chunk in http.stream():
                    if not self._limit.take(address, len(chunk)):
                        raise RequestError(
                            503, "too many bodies of requests are arriving: try again"
                        )
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        raise too_large
        except TimeoutError as error:
            message = f"the body took more than {BODY_TIMEOUT_S:.0f} seconds"
            raise RequestError(408, message) from error
        except ClientDisconnect as error:
            raise ClientDisconnected from error
        finally:
            self._limit.give_back(address, len(body))
        return bytes(body)
