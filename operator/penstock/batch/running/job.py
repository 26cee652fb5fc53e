"""Runs one batch to its end: what comes next follows from its stored state alone."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.batch.running.execution import Execution
from penstock.batch.running.line_client import LineClient
from penstock.batch.running.line_memory import LineMemory
from penstock.batch.running.line_source import LineSource
from penstock.batch.running.result_files import ResultFiles
from penstock.batch.settings import BatchSettings
from penstock.batch.store.catalog import Catalog
from penstock.batch.store.journal import Journal
from penstock.batch.store.object_store import StoreError
from penstock.batch.store.tenant_storage import TenantStorage
from penstock.batch.telemetry import BatchMetrics
from penstock.clients.machine.logs import fields
from penstock.clients.pods.shared_slots import SharedSlots
from penstock.core.batches.input_check import InputCheck
from penstock.core.batches.records import Batch, BatchError
from penstock.core.batches.results import STORAGE_FULL
from penstock_engine.http.fair_limit import FairLimit

logger = logging.getLogger(__name__)

# Bytes of an input file that are checked at a time.
CHUNK_BYTES = 1 << 20
# s: pause after an error, doubled for each further one in a row up to the second: an error of this program
# may last until another version runs.
MIN_PAUSE_S, MAX_PAUSE_S = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class JobContext:
    """State that all batches share."""

    catalog: Catalog
    storage: TenantStorage
    client: LineClient
    lines: SharedSlots  # of lines at the gateway
    checks: SharedSlots  # of checks of input files
    memory: FairLimit  # bytes of lines and of their answers
    settings: BatchSettings
    metrics: BatchMetrics
    now: Callable[[], float]  # Unix time


class BatchJob:
    """The work on one batch. batch: its present state."""

    def __init__(self, context: JobContext, batch: Batch) -> None:
        self._context = context
        self.batch = batch
        self._saving = asyncio.Lock()
        self._execution: Execution | None = None
        self._journal: Journal | None = None
        self._is_closing = False
        self._woken = asyncio.Event()  # set to end a pause

    @property
    def present(self) -> Batch:
        """The batch with the counts of its results."""
        if self._journal is None:
            return self.batch
        return self.batch.with_counts(self._journal.num_completed, self._journal.num_failed)

    async def run(self) -> None:
        """Work until the batch has ended, or until `close`."""
        pause_s = MIN_PAUSE_S
        while not self.batch.is_finished and not self._is_closing:
            self._woken.clear()
            try:
                await self._work()
            except StoreError as error:
                logger.warning("the batch %s waits for its store: %s", self.batch.id, error)
            except Exception:
                logger.exception("the batch %s is tried again in %g s", self.batch.id, pause_s)
            else:
                pause_s = MIN_PAUSE_S
                continue
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _work(self) -> None:
        """Do what the state says, up to the next state."""
        match self.batch.status:
            case "validating":
                await self._check_input()
            case "in_progress":
                await self._execute()
            case _:
                await self._write_results()

    async def _pause(self, pause_s: float) -> None:
        """Wait, at most until `cancel` or `close`."""
        try:
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def cancel(self) -> None:
        """Stop the lines. Raises StoreError, and nothing changes then."""
        async with self._saving:
            if not self.batch.may_be_cancelled:
                return
            await self._save(self.batch.cancel(self._now_s))
        self._woken.set()
        self._stop()

    def note_time(self) -> None:
        """Stop the lines if the batch's time is over."""
        if self.batch.status == "in_progress" and self._is_expired:
            self._stop()

    def close(self) -> None:
        """Send no further line: the next process goes on."""
        self._is_closing = True
        self._woken.set()
        if self._execution is not None:
            self._execution.stop()

    def cut_lines(self) -> None:
        """End the lines that run; the next process sends them again."""
        if self._execution is not None:
            self._execution.cut_lines()

    @property
    def _now_s(self) -> int:
        return int(self._context.now())

    @property
    def _is_to_check(self) -> bool:
        return not self._is_closing and self.batch.status == "validating"

    @property
    def _is_expired(self) -> bool:
        return self._context.now() >= self.batch.expires_s

    def _stop(self) -> None:
        if self._execution is not None:
            self._execution.stop()
            self._execution.cut_lines()

    async def _save(self, batch: Batch) -> None:
        """Store a new state, and take it. Raises StoreError."""
        await self._context.catalog.save_batch(batch)
        self.batch = batch
        logger.info(
            "batch changed",
            extra=fields(batch=batch.id, tenant=batch.tenant or None, status=batch.status),
        )

    async def _check_input(self) -> None:
        catalog, settings = self._context.catalog, self._context.settings
        check = InputCheck(self.batch.endpoint, settings.max_line_bytes)
        file = catalog.file(self.batch.tenant, self.batch.input_file)
        async with self._context.checks.hold(self.batch.tenant):
            if file is not None and self._is_to_check:
                async for chunk in catalog.content(file, CHUNK_BYTES):
                    await asyncio.to_thread(check.feed, chunk)
                    if check.is_over or not self._is_to_check:
                        break
            if self._is_closing:
                return
            await asyncio.to_thread(check.close)
        async with self._saving:
            if self.batch.status != "validating":  # it was cancelled
                return
            if check.errors:
                await self._save(self.batch.fail(self._now_s, tuple(check.errors)))
            else:
                await self._save(self.batch.start(self._now_s, check.num_lines, check.model))

    async def _load(self) -> tuple[Journal, LineSource]:
        """The results that are stored, and the lines without one."""
        context, store = self._context, self._context.catalog.store
        self._journal = journal = Journal(store, self.batch)
        await journal.load()
        context.storage.add_journal(self.batch, journal)
        return journal, LineSource(store, self.batch, journal, context.settings.max_line_bytes)

    async def _execute(self) -> None:
        context = self._context
        journal, source = await self._load()
        is_done = False
        if not self._is_expired and self.batch.status == "in_progress" and not self._is_closing:
            execution = self._execution = Execution(
                self.batch, source, journal, context.client, context.lines,
                LineMemory(context.memory, self.batch.tenant, context.settings.max_line_bytes),
                context.storage, context.metrics, context.now,
            )  # fmt: skip
            try:
                is_done = await execution.run()
            finally:
                self._execution = None
        async with self._saving:
            if self.batch.status != "in_progress":  # it was cancelled
                return
            if is_done or not journal.num_left:
                await self._save(self.batch.finalize(self._now_s))
            elif self._is_expired:
                await self._save(self.batch.finalize(self._now_s, is_expiring=True))
            elif not self._is_closing and not context.storage.has_room(self.batch.tenant):
                error = BatchError(STORAGE_FULL, context.storage.message)
                await self._save(self.batch.finalize(self._now_s, errors=(error,)))

    async def _write_results(self) -> None:
        journal, source = await self._load()
        files = ResultFiles(self._context.catalog, self.batch, journal, source, self._now_s)
        ended = await files.write()
        async with self._saving:
            await self._save(ended)
        self._context.storage.remove_journal(ended)
        await journal.delete()
