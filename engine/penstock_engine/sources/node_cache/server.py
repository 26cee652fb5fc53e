"""The server of a node's cache: the one process that writes the folder, and its socket there."""

import asyncio
import fcntl
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import uvicorn

from penstock_engine.contract.node_cache import SOCKET_NAME
from penstock_engine.http.connections_by_address import ConnectionsByAddress
from penstock_engine.http.open_files import allow_open_files
from penstock_engine.http.protocol import BoundedProtocol
from penstock_engine.http.signals import SignalFreeServer
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.node_cache.allowed import AllowedPrefix
from penstock_engine.sources.node_cache.app import MAX_REQUESTS, build_app
from penstock_engine.sources.node_cache.fetches import Fetches
from penstock_engine.sources.node_cache.holds import Holds
from penstock_engine.sources.node_cache.routes import SILENCE_S
from penstock_engine.sources.node_cache.socket_address import socket_address
from penstock_engine.sources.storage.store import Store

LOCK_NAME = ".node-cache.lock"
# Folders that pods may not read. A pod could lock a file of `locks` or `uses`, which needs no right to write,
# and so keep a file from being fetched or a model from being evicted.
PRIVATE_FOLDERS = ("locks", "uses", "partial", "revisions")
# Time after a start for which models that were held before are not evicted, in seconds: holders connect again
# every 3 s.
RESTART_S = 60.0
# Clients of a UNIX socket all have the same, empty address, and one address may have half of the connections.
# The half of an address is twice MAX_REQUESTS, so that idle connections do not keep requests out.
MAX_CONNECTIONS = 4 * MAX_REQUESTS
OTHER_FILES = 256  # open ones, for downloads and leases
MAX_IDLE_S = 5  # of a connection between requests; clients send one on each


class StartError(Exception):
    """The server cannot start. The message says what to do."""


class NodeCacheServer:
    """The server of a folder.

    say: writes a line. end: called if a fetch hangs after its deadline.
    """

    def __init__(
        self,
        cache: Path,
        allowed: Sequence[AllowedPrefix],
        limits: FetchLimits,
        say: Callable[[str], None],
        end: Callable[[], None],
    ) -> None:
        self._cache, self._allowed, self._limits = cache, allowed, limits
        self._say, self._end = say, end
        self._server: uvicorn.Server | None = None

    async def run(self) -> None:
        """Serve until `stop`. Raises StartError, OSError."""
        _prepare(self._cache)
        with _sole_server(self._cache), _listening(self._cache) as listener:
            store = Store(self._cache)
            store.extend_uses(RESTART_S)
            fetches = Fetches(store, self._limits, self._say, self._end)
            app = build_app(self._allowed, fetches, Holds(store))
            num_files = allow_open_files(OTHER_FILES + MAX_CONNECTIONS)
            config = uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                http=partial(  # type: ignore[arg-type]
                    BoundedProtocol,
                    limit=ConnectionsByAddress(
                        max(1, min(num_files - OTHER_FILES, MAX_CONNECTIONS))
                    ),
                    client_stall_timeout_s=SILENCE_S,
                ),
                ws="none",
                lifespan="off",
                timeout_graceful_shutdown=0,
                timeout_keep_alive=MAX_IDLE_S,
                server_header=False,
            )
            self._server = SignalFreeServer(config)
            self._say(f"Listening at {self._cache / SOCKET_NAME}")
            await self._server.serve([listener])

    def stop(self) -> None:
        """End `run`, and all connections."""
        if self._server is not None:
            self._server.should_exit = True


async def run_until_signal(server: NodeCacheServer, cache: Path) -> None:
    """Run a server until SIGTERM or SIGINT, which end this process. Raises StartError, OSError."""

    def end() -> None:
        with suppress(OSError):
            (cache / SOCKET_NAME).unlink()
        # At once, as after a crash: the next server resumes downloads, and finds the leases of held models.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    await server.run()


def _prepare(cache: Path) -> None:
    """Make the folders, with rights for pods to read. Raises OSError."""
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(0o755)
    for name in PRIVATE_FOLDERS:
        (cache / name).mkdir(exist_ok=True)
        (cache / name).chmod(0o700)


@contextmanager
def _sole_server(cache: Path) -> Iterator[None]:
    """Keep other servers from the folder. Raises StartError if there is one, OSError."""
    descriptor = os.open(cache / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StartError(
                f"another server uses {cache}: stop it, or name another folder"
            ) from error
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _listening(cache: Path) -> Iterator[socket.socket]:
    """Bind the socket in the folder, in place of one that an earlier server has left. Raises OSError."""
    (cache / SOCKET_NAME).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        with socket_address(cache) as address:
            listener.bind(address)
        (cache / SOCKET_NAME).chmod(0o666)  # before it listens: pods have other users
        try:
            yield listener
        finally:
            (cache / SOCKET_NAME).unlink(missing_ok=True)
