"""Which blocks each sequence holds: reserving, sharing by content, giving back."""

from penstock_engine.core.blocks import BlockPool, extend_hashes
from penstock_engine.core.sequence import Sequence


class KVCache:
    """The block pool seen from sequences. Single owner, no locks."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool

    def admit(self, sequence: Sequence) -> int | None:
        """Blocks for all tokens of a sequence that holds none, shared as far as they match.

        Returns how many of its tokens have keys and values already; None, with nothing changed,
        when there are too few free blocks.
        """
        shared = self._cached_prefix(sequence)
        num_blocks = self._num_blocks_for(sequence.num_tokens)
        blocks = self.pool.reserve(num_blocks - len(shared), shared)
        if blocks is None:
            return None
        sequence.block_table = blocks
        return len(shared) * self.pool.block_size

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Blocks for so many tokens. False, with nothing changed, when there are too few free."""
        num_missing = self._num_blocks_for(num_tokens) - len(sequence.block_table)
        if num_missing <= 0:
            return True
        blocks = self.pool.reserve(num_missing)
        if blocks is None:
            return False
        sequence.block_table += blocks
        return True

    def publish(self, sequence: Sequence, num_computed_tokens: int) -> None:
        """Offers to others the blocks that are full up to there, and were not before."""
        size = self.pool.block_size
        first, end = sequence.num_computed_tokens // size, num_computed_tokens // size
        if not self.pool.prefix_caching or end <= first:
            return
        extend_hashes(sequence.block_hashes, sequence.tokens, size, sequence.cache_salt)
        for index in range(first, end):
            self.pool.publish(sequence.block_table[index], sequence.block_hashes[index])

    def release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.block_table)
        sequence.block_table = []

    def _cached_prefix(self, sequence: Sequence) -> list[int]:
        if not self.pool.prefix_caching or sequence.wants_prompt_logprobs:
            return []  # what is read from the cache has no logits
        size = self.pool.block_size
        extend_hashes(sequence.block_hashes, sequence.tokens, size, sequence.cache_salt)
        # At least one token is computed, for its logits.
        return self.pool.match(sequence.block_hashes[: (sequence.num_tokens - 1) // size])

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.pool.block_size)
