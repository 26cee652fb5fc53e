"""Memory of request bodies that are being read, and the share of one client."""

import asyncio
from typing import Any

import pytest
from fastapi import Request

from penstock_engine.server.transport.arriving_bodies import ArrivingBodies, ClientDisconnected
from penstock_engine.server.transport.errors import RequestError

MAX_BYTES = 16


class Upload:
    """A request whose body arrives in the parts that the test sends."""

    def __init__(self, bodies: ArrivingBodies, address: str) -> None:
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {"type": "http", "method": "POST", "headers": [], "client": (address, 1)}
        self.reading = asyncio.create_task(bodies.read(Request(scope, self._messages.get)))

    async def send(self, part: bytes, *, is_last: bool = False) -> None:
        self._messages.put_nowait({"type": "http.request", "body": part, "more_body": not is_last})
        await self._settle()

    async def disconnect(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def status(self) -> int | None:
        """The status of the refusal; None if the body is still read."""
        if not self.reading.done():
            return None
        error = self.reading.exception()
        assert isinstance(error, RequestError)
        return error.status


async def test_a_client_gets_a_half_and_leaves_the_rest_to_others() -> None:
    bodies = ArrivingBodies(MAX_BYTES)
    first, second, other = (Upload(bodies, address) for address in ("a", "a", "b"))
    await first.send(bytes(6))
    await second.send(bytes(2))
    assert (first.status, second.status) == (None, None)
    await second.send(b"x")
    assert (first.status, second.status) == (None, 503)
    await other.send(bytes(5), is_last=True)
    assert other.reading.result() == bytes(5)
    await first.send(bytes(2), is_last=True)
    assert first.reading.result() == bytes(8)


@pytest.mark.parametrize(("num_bytes", "status"), [(8, None), (9, 503)])
async def test_a_client_gets_no_more_than_a_half_at_once(
    num_bytes: int, status: int | None
) -> None:
    upload = Upload(ArrivingBodies(MAX_BYTES), "a")
    await upload.send(bytes(num_bytes))
    assert upload.status == status
    await upload.disconnect()
    with pytest.raises(ClientDisconnected if status is None else RequestError):
        await upload.reading


async def test_complete_body_is_not_refused_because_others_have_come_since() -> None:
    bodies = ArrivingBodies(MAX_BYTES)
    first, other = Upload(bodies, "a"), Upload(bodies, "b")
    await first.send(bytes(8))
    await other.send(bytes(4))
    await first.send(b"", is_last=True)
    assert first.reading.result() == bytes(8)
    other.reading.cancel()


@pytest.mark.parametrize("ending", ["complete", "refused", "disconnected", "cancelled"])
async def test_memory_is_given_back_however_a_body_ends(ending: str) -> None:
    bodies = ArrivingBodies(MAX_BYTES)
    upload = Upload(bodies, "a")
    await upload.send(bytes(8))
    if ending == "complete":
        await upload.send(b"", is_last=True)
        assert await upload.reading == bytes(8)
    elif ending == "refused":
        await upload.send(b"x")
        assert upload.status == 503
    elif ending == "disconnected":
        await upload.disconnect()
        with pytest.raises(ClientDisconnected):
            await upload.reading
    else:
        upload.reading.cancel()
        await asyncio.wait([upload.reading])
    following = Upload(bodies, "a")
    await following.send(bytes(8), is_last=True)
    assert following.reading.result() == bytes(8)
