"""The TLS handshake of a client connection, with the limits on its number and time from the accept on.

The servers of asyncio and uvloop hide a connection until its handshake is over. A client that sends nothing
would then count for no limit. So the gateway accepts plain connections and starts TLS on them itself.
"""

import asyncio
import logging
import ssl
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from penstock.clients.machine.logs import fields
from penstock.gateway.http.certificate import ServedCertificate
from penstock.gateway.http.protocol import GatewayProtocol
from penstock.gateway.http.tls_transport import TlsTransport
from penstock.gateway.limits.connection_limit import ConnectionLimit, Replaceable
from penstock.gateway.settings import GatewaySettings

logger = logging.getLogger(__name__)


class TlsHandshake(asyncio.Protocol):
    """The server side of a connection until its TLS handshake is over; then a GatewayProtocol takes it.

    It counts among the server's connections, and any new connection may replace it. limit: of these.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        settings: GatewaySettings,
        limit: ConnectionLimit,
        certificate: ServedCertificate,
    ) -> None:
        self._loop = _loop or asyncio.get_running_loop()
        self._settings, self._limit, self._certificate = settings, limit, certificate
        self._connections = cast(set[Any], server_state.connections)
        # Made now: the time for the head of its first request begins with the connection.
        self._protocol = GatewayProtocol(
            config, server_state, app_state, _loop, settings=settings, limit=limit
        )
        self._raw: asyncio.Transport
        self._task: asyncio.Task[None] | None = None
        # Encrypted bytes before the handshake begins, then plain ones that came with its end.
        self._received: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._raw = transport
        transport.pause_reading()
        self._connections.add(self)
        if not self._limit.add(self):
            transport.abort()
            return
        self._limit.mark(self, Replaceable.IDLE)
        self._task = self._loop.create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self._received.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def abort(self) -> None:
        """Reset the connection."""
        self._raw.abort()

    def shutdown(self) -> None:
        """Reset the connection, as the server ends."""
        self._raw.abort()

    async def _run(self) -> None:
        if self._raw.is_closing():  # replaced before it began
            return
        self._raw.pause_reading()  # uvloop reads in spite of the first call
        early, self._received = self._received, []
        if (
            early
        ):  # called after `start_tls` has set its protocol, and before that starts the handshake
            self._loop.call_soon(self._pass_on, b"".join(early))
        transport = None
        try:
            transport = await self._loop.start_tls(
                self._raw,
                self,
                self._certificate.context,
                server_side=True,
                ssl_handshake_timeout=self._settings.head_timeout_s,
                # The gateway itself ends connections whose clients do not answer the close
                # (`protocol.LINGER_S`); this is the time to take the last bytes.
                ssl_shutdown_timeout=self._settings.client_stall_timeout_s,
            )
        except ssl.SSLError as error:
            reason = f"TLS handshake failed: {error.reason}"
            logger.warning("connection refused", extra=fields(reason=reason))
        except OSError:
            pass  # the client left, or was too slow
        finally:
            self._end()
        if transport is None or transport.is_closing() or self._raw.is_closing():
            self._raw.abort()
        else:
            self._hand_over(transport)

    def _pass_on(self, data: bytes) -> None:
        """Give encrypted bytes that were read too early to the protocol of TLS."""
        protocol = cast(asyncio.BufferedProtocol, self._raw.get_protocol())
        rest = memoryview(data)
        while rest:
            buffer = memoryview(protocol.get_buffer(len(rest)))
            num_bytes = min(len(buffer), len(rest))
            buffer[:num_bytes] = rest[:num_bytes]
            protocol.buffer_updated(num_bytes)
            rest = rest[num_bytes:]

    def _hand_over(self, transport: asyncio.Transport) -> None:
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(cast(asyncio.Transport, TlsTransport(transport, self._raw)))
        for data in self._received:
            self._protocol.data_received(data)

    def _end(self) -> None:
        self._connections.discard(self)
        self._limit.remove(self)
