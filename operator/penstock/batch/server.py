"""The batch server's process: its store, sockets and signals."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from penstock.batch.app import Management, api_app
from penstock.batch.running.job import JobContext
from penstock.batch.running.line_client import LineClient
from penstock.batch.running.line_memory import memory_limit
from penstock.batch.running.runner import BatchRunner
from penstock.batch.settings import BatchSettings
from penstock.batch.store.catalog import Catalog
from penstock.batch.store.folder_store import FolderStore
from penstock.batch.store.object_store import ObjectStore
from penstock.batch.store.s3_store import S3Store
from penstock.batch.store.tenant_storage import TenantStorage
from penstock.batch.telemetry import BatchMetrics
from penstock.clients.machine.token_file import follow_token, read_token
from penstock.clients.pods.shared_slots import SharedSlots

logger = logging.getLogger(__name__)

# Input files that are checked at a time. A check keeps the processor busy, so each further one makes requests
# of clients slower.
MAX_CHECKS = 2
# s: time for open requests of gateways and probes to be answered, after the server has stopped to listen.
LAST_REQUESTS_S = 2.0


class BatchSettingsError(Exception):
    """A setting that cannot be used, with what to change."""


def open_store(place: str) -> ObjectStore:
    """Open a store. place: a folder, or s3://BUCKET/PREFIX. Raises BatchSettingsError, StoreError."""
    parts = urlsplit(place)
    if parts.scheme == "s3" and parts.netloc:
        return S3Store(parts.netloc, parts.path.strip("/"))
    if parts.scheme or not place:
        raise BatchSettingsError(f"--store must be a folder or s3://BUCKET/PREFIX, not {place!r}")
    return FolderStore(Path(place))


async def serve(settings: BatchSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises BatchSettingsError, TokenFileError, StoreError, LeadershipLost."""
    stop, task = asyncio.Event(), asyncio.current_task()
    assert task is not None
    is_leading = False

    def stop_or_leave() -> None:
        stop.set()
        if not is_leading:  # it waits for another process to end
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_or_leave)
    try:
        async with running(settings):
            is_leading = True
            await stop.wait()
            drain_s = settings.drain_timeout_s
            logger.info("stopping: lines that run have %g s to be answered", drain_s)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise


@asynccontextmanager
async def running(
    settings: BatchSettings, now: Callable[[], float] = time.time
) -> AsyncIterator["Ports"]:
    """Lead, and serve in the block, after another process that leads has ended.

    now: Unix time. Raises BatchSettingsError, TokenFileError, StoreError, LeadershipLost.
    """
    token, store = read_token(settings.token_file), open_store(settings.store)
    metrics = BatchMetrics()
    management = Management(metrics)
    async with (
        listening(management.app(), settings.host, settings.management_port) as probed,
        store.leading(),
        LineClient(settings, token) as client,
        _background(follow_token(token, settings.token_file)),
    ):
        catalog = Catalog(store)
        await catalog.load()
        storage = TenantStorage(catalog, settings.max_tenant_bytes)
        context = JobContext(
            catalog=catalog,
            storage=storage,
            client=client,
            lines=SharedSlots(settings.max_lines),
            checks=SharedSlots(MAX_CHECKS),
            memory=memory_limit(settings.line_memory_bytes, settings.max_line_bytes),
            settings=settings,
            metrics=metrics,
            now=now,
        )
        runner = BatchRunner(context)
        app = api_app(catalog, storage, runner, settings, token, now)
        async with runner.running(), listening(app, settings.host, settings.port) as port:
            management.is_ready = True
            logger.info("the batch server leads, and listens at port %d", port)
            try:
                yield Ports(port, probed)
            finally:
                management.is_ready = False


@asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of a server. management: of probes and metrics."""

    api: int
    management: int


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve an application in the block. Yields its port, a free one for port 0."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=LAST_REQUESTS_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
