"""Events of the prefix cache: which blocks became shareable, and which are so no longer.

They are in the order of the changes: a set of hashes that follows them is the index of the block pool.
"""

from collections.abc import Sequence as Many
from typing import NamedTuple

from penstock_engine.core.sequence import Sequence


class BlocksStored(NamedTuple):
    """Consecutive blocks of one sequence that were added to the index.

    parent: hash of the block before them; None: they are the first of the sequence. token_ids: of all the
    blocks. adapter, cache_salt: of the sequence; they are part of the hashes.
    """

    hashes: tuple[bytes, ...]
    parent: bytes | None
    token_ids: tuple[int, ...]
    adapter: str
    cache_salt: str


class BlocksRemoved(NamedTuple):
    """Blocks that were removed from the index, because they were evicted or hold NaNs."""

    hashes: tuple[bytes, ...]


class AllBlocksCleared(NamedTuple):
    """The index was emptied."""


BlockEvent = BlocksStored | BlocksRemoved | AllBlocksCleared


class BlockEventLog:
    """Records events between two calls of `take`. Not thread-safe."""

    def __init__(self) -> None:
        self._events: list[BlockEvent] = []
        self._removed: list[bytes] = []  # since the last of _events

    def record_stored(self, sequence: Sequence, indices: Many[int], block_size: int) -> None:
        """Record blocks of a sequence. indices: their places in its block table, ascending."""
        self._end_removal()
        start = 0
        for end in range(1, len(indices) + 1):
            if end < len(indices) and indices[end] == indices[end - 1] + 1:
                continue
            first, last = indices[start], indices[end - 1]
            self._events.append(
                BlocksStored(
                    tuple(sequence.block_hashes[first : last + 1]),
                    sequence.block_hashes[first - 1] if first else None,
                    tuple(sequence.tokens[first * block_size : (last + 1) * block_size]),
                    sequence.adapter,
                    sequence.cache_salt,
                )
            )
            start = end

    def record_removed(self, block_hash: bytes) -> None:
        self._removed.append(block_hash)

    def record_cleared(self) -> None:
        self._end_removal()
        self._events.append(AllBlocksCleared())

    def take(self) -> list[BlockEvent]:
        """Return the events since the last call, oldest first."""
        self._end_removal()
        events, self._events = self._events, []
        return events

    def _end_removal(self) -> None:
        if self._removed:
            self._events.append(BlocksRemoved(tuple(self._removed)))
            self._removed = []
