"""Pool of KV blocks with reference counts, a prefix index by content hash, and LRU eviction.

    free, unhashed   never filled, or partly filled: allocated first
    free, hashed     no sequence holds it, but the prefix index still finds it: allocated oldest first
    held             by one sequence or, if its contents are shared, by several

Only full blocks are hashed, and a hashed block is never written again, so sharing needs no copy.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256

from penstock_engine.core.kv_cache.block_events import BlockEventLog


def root_hash(salt: str, adapter: str = "") -> bytes:
    """Parent hash of the first block of a sequence. Different salts or adapters never share a block."""
    if not adapter:
        return sha256(b"penstock-kv:" + salt.encode()).digest()
    return sha256(b"penstock-kv-lora:" + root_hash(adapter) + salt.encode()).digest()


def chain_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Hash of one full block: it identifies the block's tokens and, through `parent`, all before it."""
    return sha256(parent + struct.pack(f"<{len(tokens)}I", *tokens)).digest()


def extend_hashes(
    hashes: list[bytes], tokens: Sequence[int], block_size: int, salt: str = "", adapter: str = ""
) -> None:
    """Append to `hashes` one hash for each full block of `tokens` that has none yet.

    They are the same in every process and on every machine.
    """
    for index in range(len(hashes), len(tokens) // block_size):
        parent = hashes[-1] if hashes else root_hash(salt, adapter)
        hashes.append(chain_hash(parent, tokens[index * block_size : (index + 1) * block_size]))


class BlockPool:
    """Allocates, shares and evicts KV blocks, in O(1) for each block. Not thread-safe."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        prefix_caching: bool,
        events: BlockEventLog | None = None,
    ) -> None:
        """events: records what leaves the index; the caller of `publish` records what is added."""
        if num_blocks < 1 or block_size < 1:
            raise ValueError("a block pool needs at least one block of at least one token")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._events = events
        self._num_holders = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        # Blocks that no sequence holds. Those without a hash are allocated first, from the end of their list,
        # then the others in the order in which they became free.
        self._free = list(reversed(range(num_blocks)))
        self._free_hashed: OrderedDict[int, None] = OrderedDict()
        self._evicted: list[tuple[int, bytes]] = []

    @property
    def num_free_blocks(self) -> int:
        return len(self._free) + len(self._free_hashed)

    @property
    def num_cached_blocks(self) -> int:
        """Number of blocks in the prefix index, held or free."""
        return len(self._block_of)

    @property
    def usage(self) -> float:
        """Fraction of the blocks that sequences hold, 0 to 1. Cached blocks that none holds are free."""
        return 1.0 - self.num_free_blocks / self.num_blocks

    def find(self, block_hash: bytes) -> int | None:
        """The block with these contents, held or free; None if there is none. Changes nothing."""
        return self._block_of.get(block_hash)

    def reserve(self, num_new_blocks: int, shared: Sequence[int] = ()) -> list[int] | None:
        """Take a reference to the `shared` blocks (from `find`) and allocate `num_new_blocks`.

        Returns the blocks in that order; None, with nothing changed, if too few blocks are free.
        """
        num_revived = 0
        for block in shared:
            num_revived += self._num_holders[block] == 0
        if num_new_blocks + num_revived > self.num_free_blocks:
            return None
        for block in shared:
            if self._num_holders[block] == 0:
                del self._free_hashed[block]
            self._num_holders[block] += 1
        return [*shared, *[self._take_oldest() for _ in range(num_new_blocks)]]

    def publish(self, block: int, block_hash: bytes) -> bool:
        """Add a full, computed, held block to the prefix index, unless its contents are in it.

        Returns whether it was added.
        """
        assert self._num_holders[block] > 0, f"block {block} is published but not held"
        if not self.prefix_caching or self._hash_of[block] is not None:
            return False
        if self._block_of.setdefault(block_hash, block) != block:
            return False
        self._hash_of[block] = block_hash
        return True

    def unpublish(self, block_hash: bytes) -> None:
        """Remove the block with these contents from the index, if there is one."""
        block = self._block_of.pop(block_hash, None)
        if block is not None:
            self._hash_of[block] = None
            if self._events is not None:
                self._events.record_removed(block_hash)
            if self._num_holders[block] == 0:
                del self._free_hashed[block]
                self._free.append(block)

    def clear_index(self) -> None:
        """Remove all blocks from the index; sequences keep the blocks that they hold."""
        if self._events is not None:
            self._events.record_cleared()
        self._block_of.clear()
        self._hash_of = [None] * self.num_blocks
        self._free = [*reversed(self._free_hashed), *self._free]
        self._free_hashed.clear()

    def release(self, blocks: Sequence[int]) -> None:
        """Drop one reference to each block of a block table.

        Blocks are freed last first, so that the end of a prefix is evicted before its start.
        """
        for block in reversed(blocks):
            assert self._num_holders[block] > 0, f"block {block} is released but not held"
            self._num_holders[block] -= 1
            if self._num_holders[block] == 0:
                if self._hash_of[block] is None:
                    self._free.append(block)
                else:
                    self._free_hashed[block] = None

    def take_evicted(self) -> list[tuple[int, bytes]]:
        """(block, hash) of the blocks evicted since the last call.

        Their contents are still on the device until the next step is computed.
        """
        evicted, self._evicted = self._evicted, []
        return evicted

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless the block tables match the pool's reference counts."""
        num_holders = [0] * self.num_blocks
        for table in tables:
            assert len(set(table)) == len(table), "a table holds a block twice"
            for block in table:
                num_holders[block] += 1
        assert num_holders == self._num_holders, "holders differ from the tables"
        free = [block for block, count in enumerate(num_holders) if count == 0]
        listed = sorted([*self._free, *self._free_hashed])
        assert free == listed, "the free lists differ from the blocks that are not held"
        assert not any(self._hash_of[block] for block in self._free), (
            "a block with a hash is among the free ones without"
        )
        assert all(self._hash_of[block] for block in self._free_hashed), (
            "a block without a hash is among the free ones with"
        )
        hashed = {block: h for block, h in enumerate(self._hash_of) if h is not None}
        assert hashed == {block: h for h, block in self._block_of.items()}, "hash index differs"

    def _take_oldest(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._free_hashed.popitem(last=False)
            block_hash = self._hash_of[block]
            assert block_hash is not None
            del self._block_of[block_hash]
            self._hash_of[block] = None
            self._evicted.append((block, block_hash))
            if self._events is not None:
                self._events.record_removed(block_hash)
        self._num_holders[block] = 1
        return block
