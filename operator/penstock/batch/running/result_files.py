"""Writes the output file and the error file of a batch."""

from collections.abc import AsyncIterator

from penstock.batch.running.line_source import LineSource
from penstock.batch.store import keys
from penstock.batch.store.catalog import Catalog
from penstock.batch.store.journal import Journal
from penstock.core.batches.records import Batch, StoredFile
from penstock.core.batches.results import MESSAGES, Cause, unexecuted_line


class ResultFiles:
    """The files of a batch whose lines have ended. source: of the lines without a result."""

    def __init__(
        self, catalog: Catalog, batch: Batch, journal: Journal, source: LineSource, now_s: int
    ) -> None:
        self._catalog, self._batch, self._now_s = catalog, batch, now_s
        self._journal, self._source = journal, source

    async def write(self) -> Batch:
        """Write the files, those of an earlier attempt too. Returns the batch at its end.

        Raises StoreError.
        """
        journal, batch = self._journal, self._batch
        has_output = journal.num_completed > 0
        has_errors = journal.num_failed + journal.num_left > 0
        if has_output:
            await self._write(batch.output_file, "output", self._completed())
        if has_errors:
            await self._write(batch.error_file, "error", self._failed())
        counted = batch.with_counts(journal.num_completed, journal.num_failed)
        return counted.finish(self._now_s, has_output_file=has_output, has_error_file=has_errors)

    async def _write(self, file_id: str, kind: str, lines: AsyncIterator[bytes]) -> None:
        batch = self._batch
        key = keys.file_content(batch.tenant, file_id)
        num_bytes = await self._catalog.store.upload(key, lines)
        file = StoredFile(
            file_id,
            batch.tenant,
            f"{batch.id}_{kind}.jsonl",
            "batch_output",
            num_bytes,
            self._now_s,
            self._now_s + batch.results_retention_s,
        )
        await self._catalog.add_file(file)

    async def _completed(self) -> AsyncIterator[bytes]:
        async for entry in self._journal.entries(completed=True):
            yield entry.text

    async def _failed(self) -> AsyncIterator[bytes]:
        async for entry in self._journal.entries(completed=False):
            yield entry.text
        code, message = self._reason
        while (line := await self._source.next()) is not None:
            yield unexecuted_line(keys.new_line_id(), line.custom_id, code, message)

    @property
    def _reason(self) -> tuple[str, str]:
        """Why lines were not executed: a code and a message."""
        if self._batch.errors:
            error = self._batch.errors[0]
            return error.code, error.message
        cause: Cause = "batch_expired" if self._batch.is_expiring else "batch_cancelled"
        return cause, MESSAGES[cause]
