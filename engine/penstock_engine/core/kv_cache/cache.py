"""KV cache of the scheduler: block tables, prefix caching, host offloading, sliding windows.

A prefix is looked up on the device first, then in the host tier. An evicted block is saved to the
host tier, if there is one. Either copy is made only if it costs less than computing the block again
(offload_policy.py).

If every layer has a sliding window, blocks that no later token attends to are freed, and a prefix
matches as soon as the blocks in the window of its next token are cached.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass

from penstock_engine.core.kv_cache.block_events import BlockEventLog
from penstock_engine.core.kv_cache.blocks import BlockPool, extend_hashes
from penstock_engine.core.kv_cache.host_tier import HostTier
from penstock_engine.core.kv_cache.offload_policy import Choice, OffloadPolicy
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import BlockCopies, Step

# Placeholder in a block table for a block outside the sliding window, which is not held.
NULL_BLOCK = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """Number of cached tokens of an admitted sequence.

    num_host_tokens: how many of them are copied from the host tier.
    """

    num_tokens: int
    num_host_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Prefix:
    """Cached blocks [first, end) of a sequence.

    blocks: block ids on the device, None for a block that only the host tier has. slots: the host
    slots of those blocks.
    """

    first: int
    blocks: Many[int | None]
    slots: Many[int]

    @property
    def end(self) -> int:
        return self.first + len(self.blocks)


class KVCache:
    """Allocates and frees the blocks of sequences. Not thread-safe."""

    def __init__(
        self,
        pool: BlockPool,
        num_host_blocks: int = 0,
        window_tokens: int | None = None,
        events: BlockEventLog | None = None,
    ) -> None:
        """num_host_blocks: size of the host tier; 0: no host tier. window_tokens: the largest
        sliding window of the layers, the token itself included; None: some layer has full attention.
        events: the pool's log.
        """
        self.pool = pool
        self.num_evicted_blocks = 0
        self.num_saved_blocks = 0
        self._num_host_blocks = num_host_blocks
        self._window_tokens = window_tokens
        self._events = events
        self._host = HostTier(num_host_blocks)
        self._offload = OffloadPolicy(pool.block_size)  # used only with host blocks
        self._saves: list[tuple[int, int]] = []
        self._restores: list[tuple[int, int]] = []
        self._forks: list[tuple[int, int]] = []

    def admit(self, sequence: Sequence) -> Admission | None:
        """Allocate blocks for all tokens of a sequence that holds none, sharing its cached prefix.

        Returns None, with nothing changed, if too few blocks are free.
        """
        hashes = self._matchable_hashes(sequence)
        prefix = self._find(hashes, in_host=True)
        choice = self._offload.choose_restore() if prefix.slots else None
        if choice is not None and choice.action != "restore":
            prefix = self._find(hashes, in_host=False)
        shared = [block for block in prefix.blocks if block is not None]
        num_new = self._num_blocks_for(sequence.num_tokens) - prefix.first - len(shared)
        blocks = self.pool.reserve(num_new, shared)
        if blocks is None:
            return None
        if choice is not None:
            self._offload.count(choice)
        fresh = iter(blocks[len(shared) :])
        slots = iter(prefix.slots)
        table = [NULL_BLOCK] * prefix.first
        restored: list[int] = []
        for block, block_hash in zip(prefix.blocks, hashes[prefix.first :], strict=False):
            if block is None:
                self._host.pin(block_hash)
                block = next(fresh)
                self._restores.append((next(slots), block))
                if self.pool.publish(block, block_hash):
                    restored.append(len(table))
            table.append(block)
        sequence.block_table = [*table, *fresh]
        sequence.num_skipped_blocks = prefix.first
        self._save_evicted()
        self._record_stored(sequence, restored)
        size = self.pool.block_size
        return Admission(prefix.end * size, len(prefix.slots) * size)

    def fork(self, sequence: Sequence, parent: Sequence) -> Admission | None:
        """Allocate blocks for a sequence with the same prompt as `parent`, sharing the prompt's blocks.

        All prompt tokens but the last count as cached. Full blocks are shared, whatever their hash; a
        last, partly filled block is copied. Returns None, with nothing changed, if too few blocks
        are free.
        """
        size = self.pool.block_size
        num_tokens = sequence.num_prompt_tokens - 1
        first = self._first_visible_block(num_tokens)
        if parent.num_skipped_blocks > first:  # the parent's window moved on and freed some of them
            return self.admit(sequence)
        shared = parent.block_table[first : num_tokens // size]
        num_new = self._num_blocks_for(sequence.num_tokens) - first - len(shared)
        blocks = self.pool.reserve(num_new, shared)
        if blocks is None:
            return None
        sequence.block_table = [*([NULL_BLOCK] * first), *blocks]
        sequence.num_skipped_blocks = first
        if num_tokens % size:
            last = num_tokens // size
            self._forks.append((parent.block_table[last], sequence.block_table[last]))
        self._save_evicted()
        return Admission(num_tokens)

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Allocate the blocks that num_tokens need and the sequence does not hold yet.

        Returns False, with nothing changed, if too few blocks are free.
        """
        num_missing = self._num_blocks_for(num_tokens) - len(sequence.block_table)
        if num_missing <= 0:
            return True
        blocks = self.pool.reserve(num_missing)
        if blocks is None:
            return False
        sequence.block_table += blocks
        self._save_evicted()
        return True

    def publish(self, sequence: Sequence, num_computed_tokens: int) -> None:
        """Add the blocks that become full with num_computed_tokens to the prefix cache."""
        size = self.pool.block_size
        first, end = sequence.num_computed_tokens // size, num_computed_tokens // size
        if not self.pool.prefix_caching or end <= first:
            return
        self._extend_hashes(sequence)
        blocks, hashes = sequence.block_table, sequence.block_hashes
        added = [
            index for index in range(first, end) if self.pool.publish(blocks[index], hashes[index])
        ]
        self._record_stored(sequence, added)

    def discard(self, sequence: Sequence) -> None:
        """Remove all blocks of a sequence from the prefix cache, on the device and in the host.

        For a sequence with NaN logits: any of its blocks may hold the NaN that caused them, even one
        that another sequence published, and would fail every request with that prefix. Correct
        blocks are removed too; they are computed once more when needed.
        """
        for block_hash in sequence.block_hashes:
            self.pool.unpublish(block_hash)
            self._host.drop(block_hash)

    def release_skipped(self, sequence: Sequence) -> None:
        """Free the blocks that lie outside the attention window of the next token."""
        first = self._first_visible_block(sequence.num_computed_tokens)
        for index in range(sequence.num_skipped_blocks, first):
            self.pool.release(sequence.block_table[index : index + 1])
        sequence.num_skipped_blocks = max(first, sequence.num_skipped_blocks)

    def release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.held_blocks)
        sequence.block_table = []
        sequence.num_skipped_blocks = 0

    @property
    def copy_choices(self) -> Mapping[Choice, int]:
        """Number of times each offload choice was made; empty without a host tier."""
        return self._offload.choices

    def observe_step(self, step: Step, duration_s: float) -> None:
        """Learn the costs of computing and copying from the duration of one step."""
        num_copies = len(step.block_copies.saves) + len(step.block_copies.restores)
        self._offload.observe_step(step.num_tokens, num_copies, duration_s)

    def take_block_copies(self) -> BlockCopies:
        """Return and clear the block copies to make before the next step is computed."""
        copies = BlockCopies(tuple(self._saves), tuple(self._restores), tuple(self._forks))
        self._saves, self._restores, self._forks = [], [], []
        self._host.unpin()
        return copies

    def reset_prefix_cache(self) -> None:
        """Empties the prefix cache, on the device and in the host."""
        self.pool.clear_index()
        self._host.clear()

    def check(self, sequences: Many[Sequence]) -> None:
        """Raise AssertionError if reference counts are wrong or a block outside the window is held."""
        self.pool.check(sequence.held_blocks for sequence in sequences)
        self._host.check(self._num_host_blocks)
        for sequence in sequences:
            first = self._first_visible_block(sequence.num_computed_tokens)
            assert sequence.num_skipped_blocks == first, "held blocks differ from the window"

    def _record_stored(self, sequence: Sequence, indices: Many[int]) -> None:
        """Record that blocks of a sequence were added to the index. indices: places in its table."""
        if indices and self._events is not None:
            self._events.record_stored(sequence, indices, self.pool.block_size)

    def _save_evicted(self) -> None:
        for block, block_hash in self.pool.take_evicted():
            self.num_evicted_blocks += 1
            if self._host.refresh(block_hash):
                self.num_saved_blocks += 1  # an earlier copy is in the host
                continue
            if not self._num_host_blocks or not self._offload.should_save():
                continue
            slot = self._host.keep(block_hash)
            if slot is not None:
                self.num_saved_blocks += 1
                self._saves.append((block, slot))

    def _find(self, hashes: Many[bytes], *, in_host: bool) -> Prefix:
        """The longest prefix whose blocks in the attention window of the next token are all cached."""
        places: list[tuple[int | None, int | None]] = []
        num_known = first = end = 0  # num_known: consecutive cached blocks up to the current one
        for block_hash in hashes:
            block = self.pool.find(block_hash)
            slot = self._host.find(block_hash) if block is None and in_host else None
            places.append((block, slot))
            if block is not None or slot is not None:
                num_known += 1
            elif self._window_tokens is None:
                break
            else:
                num_known = 0
            first_visible = self._first_visible_block(len(places) * self.pool.block_size)
            if num_known >= len(places) - first_visible:
                first, end = first_visible, len(places)
        found = places[first:end]
        return Prefix(
            first,
            [block for block, _ in found],
            [slot for _, slot in found if slot is not None],
        )

    def _first_visible_block(self, position: int) -> int:
        """Index of the first block in the attention window of the token at this position."""
        if self._window_tokens is None:
            return 0
        return max(0, position - self._window_tokens + 1) // self.pool.block_size

    def _matchable_hashes(self, sequence: Sequence) -> list[bytes]:
        """Hashes of the blocks that may be read from the prefix cache."""
        if not self.pool.prefix_caching or sequence.wants_prompt_logprobs:
            return []  # prompt log-probabilities need the logits of every prompt token
        self._extend_hashes(sequence)
        # The last token is always computed: its logits give the next token.
        return sequence.block_hashes[: (sequence.num_tokens - 1) // self.pool.block_size]

    def _extend_hashes(self, sequence: Sequence) -> None:
        size, salt, adapter = self.pool.block_size, sequence.cache_salt, sequence.adapter
        extend_hashes(sequence.block_hashes, sequence.tokens, size, salt, adapter)

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.pool.block_size)
