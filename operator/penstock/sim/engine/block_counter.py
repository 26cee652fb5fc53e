"""Counts KV blocks where none is shared, so that it does not matter which block a sequence holds."""

from collections.abc import Iterable, Sequence

from penstock_engine.core.kv_cache.blocks import BlockPool


class BlockCounter(BlockPool):
    """Block pool without prefix caching: every block is block 0, and any number of them is O(1)."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size, prefix_caching=False)
        self._num_free = num_blocks

    @property
    def num_free_blocks(self) -> int:
        return self._num_free

    def reserve(self, num_new_blocks: int, shared: Sequence[int] = ()) -> list[int] | None:
        assert not shared, "no block is shared without prefix caching"
        if num_new_blocks > self._num_free:
            return None
        self._num_free -= num_new_blocks
        return [0] * num_new_blocks

    def release(self, blocks: Sequence[int]) -> None:
        self._num_free += len(blocks)

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless the block tables hold all blocks that are not free."""
        num_held = sum(len(table) for table in tables)
        assert num_held + self._num_free == self.num_blocks, "blocks are lost or held twice"
