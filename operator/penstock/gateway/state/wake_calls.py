"""Calls for the operator to wake services at zero, which it waits for by a long poll."""

import asyncio
import contextlib
import uuid


class WakeCalls:
    """Counts the requests that came for services without an engine."""

    def __init__(self) -> None:
        # Tokens of a restarted gateway differ from those before, so that no call is taken for an old one.
        self._process = uuid.uuid4().hex
        self._count = 0
        self._changed = asyncio.Event()
        self._is_closed = False

    @property
    def token(self) -> str:
        """A text that changes with each call."""
        return f"{self._process}-{self._count}"

    def note(self) -> None:
        """Call the operator, as a request came for a service without an engine."""
        self._count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def close(self) -> None:
        """End all waits, now and later: the gateway stops."""
        self._is_closed = True
        self._changed.set()

    async def wait(self, token: str, timeout_s: float) -> str:
        """Wait until the token differs from the given one, for `timeout_s` at most. Returns the token."""
        if token == self.token and not self._is_closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait()
        return self.token
