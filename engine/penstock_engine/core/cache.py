"""Which blocks each sequence holds: reserving, sharing by content, giving back.

A prefix is looked for on the device, and in the host tier where the device does not have it. A
block whose contents are given up goes to the host tier, if there is one. Either copy is made only
where it costs less than to compute the block again (copying.py).

Where every layer looks back through a window, a block that no token to come can see is given back,
and of a prefix only what its next token sees has to be found.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass

from penstock_engine.core.blocks import BlockPool, extend_hashes
from penstock_engine.core.copying import Choice, Copying
from penstock_engine.core.host_tier import HostTier
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import Moves, Step

# In a block table, in the place of a block that is not held because nothing looks at it.
UNSEEN = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """Tokens of an admitted sequence that have keys and values; host: those that came from there."""

    num_tokens: int
    num_host_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Prefix:
    """Blocks [first, end) of a sequence, found by content.

    blocks: on the device, None where only the host has it. slots: in the host, of those.
    """

    first: int
    blocks: Many[int | None]
    slots: Many[int]

    @property
    def end(self) -> int:
        return self.first + len(self.blocks)


class KVCache:
    """The block pool seen from sequences. Single owner, no locks."""

    def __init__(
        self, pool: BlockPool, num_host_blocks: int = 0, window_tokens: int | None = None
    ) -> None:
        """window_tokens: a token sees itself and the window_tokens - 1 before it, in each layer;
        None: in some layer it sees all."""
        self.pool = pool
        self.num_evicted_blocks = 0
        self.num_saved_blocks = 0
        self._num_host_blocks = num_host_blocks
        self._window_tokens = window_tokens
        self._host = HostTier(num_host_blocks)
        self._copying = Copying(pool.block_size)  # asked only where there are host blocks
        self._saves: list[tuple[int, int]] = []
        self._restores: list[tuple[int, int]] = []
        self._forks: list[tuple[int, int]] = []

    def admit(self, sequence: Sequence) -> Admission | None:
        """Blocks for all tokens of a sequence that holds none, shared as far as they match.

        None, with nothing changed, when there are too few free blocks.
        """
        hashes = self._known_hashes(sequence)
        prefix = self._find(hashes, in_host=True)
        choice = self._copying.choose_restore() if prefix.slots else None
        if choice is not None and choice.action != "restore":
            prefix = self._find(hashes, in_host=False)
        shared = [block for block in prefix.blocks if block is not None]
        num_new = self._num_blocks_for(sequence.num_tokens) - prefix.first - len(shared)
        blocks = self.pool.reserve(num_new, shared)
        if blocks is None:
            return None
        if choice is not None:
            self._copying.count(choice)
        fresh = iter(blocks[len(shared) :])
        slots = iter(prefix.slots)
        table = [UNSEEN] * prefix.first
        for block, block_hash in zip(prefix.blocks, hashes[prefix.first :], strict=False):
            if block is None:
                self._host.pin(block_hash)
                block = next(fresh)
                self._restores.append((next(slots), block))
                self.pool.publish(block, block_hash)
            table.append(block)
        sequence.block_table = [*table, *fresh]
        sequence.num_unseen_blocks = prefix.first
        self._save_evicted()
        size = self.pool.block_size
        return Admission(prefix.end * size, len(prefix.slots) * size)

    def fork(self, sequence: Sequence, parent: Sequence) -> Admission | None:
        """Like admit, with all of the parent's prompt but its last token.

        Full blocks are shared, whatever their hash; of the last one begun, a copy is taken.
        """
        size = self.pool.block_size
        num_tokens = sequence.num_prompt_tokens - 1
        first = self._first_seen_block(num_tokens)
        if parent.num_unseen_blocks > first:  # it has gone on, and given some of them back
            return self.admit(sequence)
        shared = parent.block_table[first : num_tokens // size]
        num_new = self._num_blocks_for(sequence.num_tokens) - first - len(shared)
        blocks = self.pool.reserve(num_new, shared)
        if blocks is None:
            return None
        sequence.block_table = [*([UNSEEN] * first), *blocks]
        sequence.num_unseen_blocks = first
        if num_tokens % size:
            last = num_tokens // size
            self._forks.append((parent.block_table[last], sequence.block_table[last]))
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

    def discard(self, sequence: Sequence) -> None:
        """Remove all blocks of a sequence from the prefix cache, on the device and in the host.

        For a sequence with NaN logits: any of its blocks may hold the NaN that caused them, even one
        that another sequence published, and would fail every request with that prefix. Correct
        blocks are removed too; they are computed once more when needed.
        """
        for block_hash in sequence.block_hashes:
            self.pool.unpublish(block_hash)
            self._host.drop(block_hash)

    def release_unseen(self, sequence: Sequence) -> None:
        """Free the blocks that lie outside the attention window of the next token."""
        first = self._first_seen_block(sequence.num_computed_tokens)
        for index in range(sequence.num_unseen_blocks, first):
            self.pool.release(sequence.block_table[index : index + 1])
        sequence.num_unseen_blocks = max(first, sequence.num_unseen_blocks)

    def release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.held_blocks)
        sequence.block_table = []
        sequence.num_unseen_blocks = 0

    @property
    def copy_choices(self) -> Mapping[Choice, int]:
        """How often each was made; empty without a host tier."""
        return self._copying.choices

    def timed(self, step: Step, duration_s: float) -> None:
        """How long a step took, with what it had to copy to and from the host."""
        num_copies = len(step.moves.saves) + len(step.moves.restores)
        self._copying.timed(step.num_tokens, num_copies, duration_s)

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

    def check(self, sequences: Many[Sequence]) -> None:
        """Raises AssertionError when the books do not balance, or a block is held for nothing."""
        self.pool.check(sequence.held_blocks for sequence in sequences)
        self._host.check(self._num_host_blocks)
        for sequence in sequences:
            first = self._first_seen_block(sequence.num_computed_tokens)
            assert sequence.num_unseen_blocks == first, "the window is not where its blocks are"

    def _save_evicted(self) -> None:
        for block, block_hash in self.pool.take_evicted():
            self.num_evicted_blocks += 1
            if self._host.refresh(block_hash):
                self.num_saved_blocks += 1  # an earlier copy is in the host
                continue
            if not self._num_host_blocks or not self._copying.saves():
                continue
            slot = self._host.keep(block_hash)
            if slot is not None:
                self.num_saved_blocks += 1
                self._saves.append((block, slot))

    def _find(self, hashes: Many[bytes], *, in_host: bool) -> Prefix:
        """The longest prefix of which all is known that the token after it sees."""
        places: list[tuple[int | None, int | None]] = []
        num_known = first = end = 0  # num_known: in a row, the last of all
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
            first_seen = self._first_seen_block(len(places) * self.pool.block_size)
            if num_known >= len(places) - first_seen:
                first, end = first_seen, len(places)
        found = places[first:end]
        return Prefix(
            first,
            [block for block, _ in found],
            [slot for _, slot in found if slot is not None],
        )

    def _first_seen_block(self, position: int) -> int:
        """The first that a token at this position sees."""
        if self._window_tokens is None:
            return 0
        return max(0, position - self._window_tokens + 1) // self.pool.block_size

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
