"""Which blocks each sequence holds: reserving, sharing by content, giving back.

A prefix is looked for on the device, and where the device ends in the host tier. A block whose
contents are given up goes to the host tier, if there is one.
"""

from dataclasses import dataclass

from penstock_engine.core.blocks import BlockPool, extend_hashes
from penstock_engine.core.host_tier import HostTier
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import Moves


@dataclass(frozen=True, slots=True)
class Admission:
    """Tokens of an admitted sequence that have keys and values; host: those that came from there."""

    num_tokens: int
    num_host_tokens: int = 0


class KVCache:
    """The block pool seen from sequences. Single owner, no locks."""

    def __init__(self, pool: BlockPool, num_host_blocks: int = 0) -> None:
        self.pool = pool
        self.num_evicted_blocks = 0
        self.num_saved_blocks = 0
        self._num_host_blocks = num_host_blocks
        self._host = HostTier(num_host_blocks)
        self._saves: list[tuple[int, int]] = []
        self._restores: list[tuple[int, int]] = []
        self._forks: list[tuple[int, int]] = []

    def admit(self, sequence: Sequence) -> Admission | None:
        """Blocks for all tokens of a sequence that holds none, shared as far as they match.

        None, with nothing changed, when there are too few free blocks.
        """
        size = self.pool.block_size
        hashes = self._known_hashes(sequence)
        shared = self.pool.match(hashes)
        slots = self._host.match(hashes[len(shared) :])
        blocks = self.pool.reserve(self._num_blocks_for(sequence.num_tokens) - len(shared), shared)
        if blocks is None:
            return None
        sequence.block_table = blocks
        end = len(shared) + len(slots)
        self._host.pin(hashes[len(shared) : end])
        for slot, block, block_hash in zip(
            slots, blocks[len(shared) : end], hashes[len(shared) : end], strict=True
        ):
            self._restores.append((slot, block))
            self.pool.publish(block, block_hash)
        self._save_evicted()
        return Admission(end * size, len(slots) * size)

    def fork(self, sequence: Sequence, parent: Sequence) -> Admission | None:
        """Like admit, with all of the parent's prompt but its last token.

        Full blocks are shared, whatever their hash; of the last one begun, a copy is taken.
        """
        size = self.pool.block_size
        num_tokens = sequence.num_prompt_tokens - 1
        shared = parent.block_table[: num_tokens // size]
        blocks = self.pool.reserve(self._num_blocks_for(sequence.num_tokens) - len(shared), shared)
        if blocks is None:
            return None
        sequence.block_table = blocks
        if num_tokens % size:
            self._forks.append((parent.block_table[len(shared)], blocks[len(shared)]))
        self._save_evicted()
        return Admission(num_tokens)

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Blocks for so many tokens. False, with nothing changed, when there are too few free."""
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
        """Offers to others the blocks that are full up to there, and were not before."""
        size = self.pool.block_size
        first, end = sequence.num_computed_tokens // size, num_computed_tokens // size
        if not self.pool.prefix_caching or end <= first:
            return
        extend_hashes(sequence.block_hashes, sequence.tokens, size, sequence.root_hash)
        for index in range(first, end):
            self.pool.publish(sequence.block_table[index], sequence.block_hashes[index])

    def release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.block_table)
        sequence.block_table = []

    def take_moves(self) -> Moves:
        """What has to be copied before the next step is computed."""
        moves = Moves(tuple(self._saves), tuple(self._restores), tuple(self._forks))
        self._saves, self._restores, self._forks = [], [], []
        self._host.unpin()
        return moves

    def forget(self) -> None:
        """Empties the prefix cache, on the device and in the host."""
        self.pool.forget()
        self._host.clear()

    def check(self) -> None:
        self._host.check(self._num_host_blocks)

    def _save_evicted(self) -> None:
        for block, block_hash in self.pool.take_evicted():
            self.num_evicted_blocks += 1
            slot = self._host.keep(block_hash)
            if slot is not None:
                self.num_saved_blocks += 1
                self._saves.append((block, slot))

    def _known_hashes(self, sequence: Sequence) -> list[bytes]:
        """Of the blocks that may be read from the cache."""
        if not self.pool.prefix_caching or sequence.wants_prompt_logprobs:
            return []  # what is read from the cache has no logits
        size = self.pool.block_size
        extend_hashes(sequence.block_hashes, sequence.tokens, size, sequence.root_hash)
        # At least one token is computed, for its logits.
        return sequence.block_hashes[: (sequence.num_tokens - 1) // size]

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.pool.block_size)
