"""Host tier of the KV cache: blocks that were evicted from the device."""

from collections import OrderedDict


class HostTier:
    """Maps the content hashes of full blocks to slots in host memory; LRU eviction. Not thread-safe."""

    def __init__(self, num_blocks: int) -> None:
        self._free = list(reversed(range(num_blocks)))
        self._slot_of: OrderedDict[bytes, int] = OrderedDict()
        self._pinned: set[bytes] = set()

    @property
    def num_blocks(self) -> int:
        return len(self._slot_of)

    def find(self, block_hash: bytes) -> int | None:
        """The slot with these contents; None if there is none."""
        return self._slot_of.get(block_hash)

    def pin(self, block_hash: bytes) -> None:
        """Mark contents as most recently used, and protect their slot from eviction until `unpin`."""
        self._slot_of.move_to_end(block_hash)
        self._pinned.add(block_hash)

    def unpin(self) -> None:
        """Allow the eviction of all pinned contents again."""
        self._pinned.clear()

    def refresh(self, block_hash: bytes) -> bool:
        """Mark contents as most recently used. Returns False if they are not here."""
        if block_hash not in self._slot_of:
            return False
        self._slot_of.move_to_end(block_hash)
        return True

    def keep(self, block_hash: bytes) -> int | None:
        """Assign a slot to contents that are not here yet; None if all slots are pinned."""
        if not self._free:
            oldest = next((h for h in self._slot_of if h not in self._pinned), None)
            if oldest is None:
                return None
            self._free.append(self._slot_of.pop(oldest))
        slot = self._slot_of[block_hash] = self._free.pop()
        return slot

    def drop(self, block_hash: bytes) -> None:
        """Free the slot with these contents, if there is one."""
        slot = self._slot_of.pop(block_hash, None)
        if slot is not None:
            self._pinned.discard(block_hash)
            self._free.append(slot)

    def clear(self) -> None:
        """Free all slots."""
        self._free += self._slot_of.values()
        self._slot_of.clear()

    def check(self, num_blocks: int) -> None:
        """Raise AssertionError unless each of the num_blocks slots is either free or used once."""
        slots = [*self._free, *self._slot_of.values()]
        assert sorted(slots) == list(range(num_blocks)), "a slot is lost or used twice"
