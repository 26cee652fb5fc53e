"""Runs all batches that have not ended, and deletes what is older than the retention."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.batch.running.job import BatchJob, JobContext
from penstock.batch.store.object_store import StoreError
from penstock.core.batches.records import Batch

logger = logging.getLogger(__name__)

# s: how late a batch may notice that its time is over, and how often old files are looked for.
TICK_INTERVAL_S = 1.0
RETENTION_INTERVAL_S = 600.0
# s: time to store results and states, after the lines that ran were cut.
LAST_WRITES_S = 5.0


class BatchRunner:
    """The jobs of all batches that have not ended."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._jobs: dict[str, BatchJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Go on with all stored batches, and run new ones in the block."""
        for batch in self._context.catalog.all_batches():
            if not batch.is_finished:
                self.start(batch)
        ticking = [
            asyncio.create_task(self._note_time()),
            asyncio.create_task(self._delete_regularly()),
        ]
        try:
            yield
        finally:
            for task in ticking:
                task.cancel()
            await asyncio.gather(*ticking, return_exceptions=True)
            await self._close()

    def start(self, batch: Batch) -> None:
        """Run a batch that is stored, or go on with it."""
        job = self._jobs[batch.id] = BatchJob(self._context, batch)
        task = self._tasks[batch.id] = asyncio.create_task(job.run())
        task.add_done_callback(lambda ended: self._note_end(batch.id, ended))

    async def cancel(self, batch: Batch) -> Batch:
        """Stop a batch that may be cancelled, and return its new state. Raises StoreError."""
        job = self._jobs.get(batch.id)
        if job is None:
            return batch
        await job.cancel()
        return job.batch

    def present(self, batch: Batch) -> Batch:
        """Return a batch with its present counts."""
        job = self._jobs.get(batch.id)
        return batch if job is None else job.present

    def _note_end(self, batch_id: str, task: asyncio.Task[None]) -> None:
        del self._jobs[batch_id], self._tasks[batch_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the batch %s has stopped", batch_id, exc_info=error)

    async def _note_time(self) -> None:
        while True:
            for job in list(self._jobs.values()):
                job.note_time()
            self._context.metrics.note_batches(
                [job.batch for job in self._jobs.values()],
                self._context.lines.num_held,
                self._context.now(),
            )
            await asyncio.sleep(TICK_INTERVAL_S)

    async def _delete_regularly(self) -> None:
        while True:
            try:
                await self.delete_old()
            except StoreError as error:
                logger.warning("old files are not deleted: %s", error)
            await asyncio.sleep(RETENTION_INTERVAL_S)

    async def delete_old(self) -> None:
        """Delete files and batches whose retention is over. Raises StoreError."""
        catalog, now_s = self._context.catalog, self._context.now()
        for file in catalog.all_files():
            if file.expires_s <= now_s and not catalog.is_in_use(file):
                await catalog.delete_file(file)
        for batch in catalog.all_batches():
            lasts_until_s = batch.created_s + self._context.settings.retention_s
            if batch.is_finished and lasts_until_s <= now_s:
                await catalog.delete_batch(batch)

    async def _close(self) -> None:
        """Let lines that run be answered, then cut them, and store their results."""
        for job in list(self._jobs.values()):
            job.close()
        tasks = list(self._tasks.values())
        if not tasks:
            return
        _, left = await asyncio.wait(tasks, timeout=self._context.settings.drain_timeout_s)
        for job in list(self._jobs.values()):
            job.cut_lines()
        if left:
            _, left = await asyncio.wait(left, timeout=LAST_WRITES_S)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
