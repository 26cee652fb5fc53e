"""The journal of a batch: the results of its lines until they are written to files.

It consists of segments, which are objects that never change. A result is in the journal when its segment is
stored; a crash loses the results that wait for the next segment, whose lines are then sent again. Of two
results of a line the first one counts.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from penstock.batch.store import keys
from penstock.batch.store.object_store import ObjectStore
from penstock.core.batches.records import Batch

# s: time between two segments. It grows with their number, so that a batch of a day has 4,000, not 86,400.
MIN_INTERVAL_S = 1.0
INTERVAL_S_PER_SEGMENT = 0.01
# Results that wait for a segment of this size are written before the interval is over; with twice as much,
# as when the store cannot be written to, no further line is sent.
SEGMENT_BYTES = 4 << 20

COMPLETED, FAILED = b"c", b"f"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The result of a line. index: of the line. text: of the output or error file, with its line feed."""

    index: int
    is_completed: bool
    text: bytes


class Journal:
    """The results of one batch.

    num_completed, num_failed: of its lines, with those not stored yet. num_bytes: of their results.
    """

    def __init__(self, store: ObjectStore, batch: Batch) -> None:
        self._store = store
        self._batch = batch
        self._has_result = bytearray(batch.num_lines)
        self._pending: list[JournalEntry] = []
        self._pending_bytes = 0
        self._num_segments = 0
        self.num_completed = self.num_failed = self.num_bytes = 0

    @property
    def interval_s(self) -> float:
        """Time until the next segment is due."""
        return MIN_INTERVAL_S + INTERVAL_S_PER_SEGMENT * self._num_segments

    @property
    def is_segment_full(self) -> bool:
        return self._pending_bytes >= SEGMENT_BYTES

    @property
    def has_room(self) -> bool:
        """Whether results of further lines can be taken."""
        return self._pending_bytes < 2 * SEGMENT_BYTES

    @property
    def num_left(self) -> int:
        """Lines without a result."""
        return self._batch.num_lines - self.num_completed - self.num_failed

    async def load(self) -> None:
        """Read which lines have a result. Raises StoreError."""
        async for entry in self._stored_entries():
            self._note(entry)

    def has_result(self, index: int) -> bool:
        return bool(self._has_result[index])

    def add(self, entry: JournalEntry) -> None:
        """Add the result of a line, for the next segment."""
        if self._note(entry):
            self._pending.append(entry)
            self._pending_bytes += len(entry.text)

    async def flush(self) -> None:
        """Store the results that wait; one call at a time. Raises StoreError, and they wait on."""
        entries = list(self._pending)
        if not entries:
            return
        data = b"".join(_encode(each) for each in entries)
        key = keys.segment(self._batch.tenant, self._batch.id, self._num_segments)
        await self._store.write(key, data)
        self._num_segments += 1
        del self._pending[: len(entries)]
        self._pending_bytes -= sum(len(each.text) for each in entries)

    async def entries(self, *, completed: bool) -> AsyncIterator[JournalEntry]:
        """The stored results, each line's once: those of completed lines, or of failed ones."""
        seen = bytearray(self._batch.num_lines)
        async for entry in self._stored_entries():
            if not seen[entry.index] and entry.is_completed == completed:
                yield entry
            seen[entry.index] = 1

    async def delete(self) -> None:
        """Delete all segments. Raises StoreError."""
        for key in await self._store.list_keys(keys.journal(self._batch.tenant, self._batch.id)):
            await self._store.delete(key)

    async def _stored_entries(self) -> AsyncIterator[JournalEntry]:
        for key in await self._store.list_keys(keys.journal(self._batch.tenant, self._batch.id)):
            self._num_segments = max(self._num_segments, int(key.rpartition("/")[2]) + 1)
            for text in (await self._store.read(key)).splitlines(keepends=True):
                yield _decode(text)

    def _note(self, entry: JournalEntry) -> bool:
        """Count a result. Returns whether it is the line's first one."""
        if self._has_result[entry.index]:
            return False
        self._has_result[entry.index] = 1
        self.num_bytes += len(entry.text)
        if entry.is_completed:
            self.num_completed += 1
        else:
            self.num_failed += 1
        return True


def _encode(entry: JournalEntry) -> bytes:
    return b"%d %s %s" % (entry.index, COMPLETED if entry.is_completed else FAILED, entry.text)


def _decode(text: bytes) -> JournalEntry:
    index, outcome, result = text.split(b" ", 2)
    return JournalEntry(int(index), outcome == COMPLETED, result)
