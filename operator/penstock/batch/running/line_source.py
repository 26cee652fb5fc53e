"""Reads the lines of an input file that have no result yet, one after another."""

from collections import deque

from penstock.batch.store import keys
from penstock.batch.store.journal import Journal
from penstock.batch.store.object_store import ObjectStore
from penstock.core.batches.input_line import InputLine, parse_line
from penstock.core.batches.line_splitter import LineSplitter
from penstock.core.batches.records import Batch

# Bytes that are read at a time. They are in memory for each batch that runs.
CHUNK_BYTES = 64 << 10


class LineSource:
    """The lines of a batch whose file has been checked, without those that the journal has."""

    def __init__(
        self, store: ObjectStore, batch: Batch, journal: Journal, max_line_bytes: int
    ) -> None:
        self._store, self._batch, self._journal = store, batch, journal
        self._key = keys.file_content(batch.tenant, batch.input_file)
        self._splitter = LineSplitter(max_line_bytes)
        self._lines: deque[bytes] = deque()
        self._position = 0
        self._index = 0
        self._is_read = False

    async def next(self) -> InputLine | None:
        """Return the next line; None at the end. Raises StoreError."""
        while True:
            while self._lines:
                text, index = self._lines.popleft(), self._index
                self._index += 1
                if not self._journal.has_result(index):
                    return parse_line(text, index, self._batch.endpoint)
            if self._is_read:
                return None
            await self._read()

    async def _read(self) -> None:
        chunk = await self._store.read(self._key, self._position, CHUNK_BYTES)
        self._position += len(chunk)
        self._is_read = not chunk
        found = self._splitter.feed(chunk) if chunk else self._splitter.close()
        self._lines += [line for _, line in found if line is not None]
