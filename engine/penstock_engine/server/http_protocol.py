"""uvicorn's HTTP/1.1 protocol with a time limit for the head of a request."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds for the first head of a connection, and for one that has begun, as the gateway's --head-timeout-s.
# uvicorn has no limit, so clients that send nothing could use up the open files that health checks need too.
HEAD_TIMEOUT_S = 10.0


class HeadTimeoutProtocol(H11Protocol):
    """HTTP/1.1 connection that is closed if the head of a request is not complete in head_timeout_s."""

    head_timeout_s = HEAD_TIMEOUT_S

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_timeout_s, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_timer()

    def _set_timer(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop_timer()
        elif self._head_timer is None and self.conn.trailing_data[0]:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
