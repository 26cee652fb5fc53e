"""Index of the prompt beginnings that engines have in their prefix caches.

It is fed with the requests that were sent to each engine. What an engine has evicted since is estimated: each
engine's beginnings are in the order of their last use, and those used before the last `horizon` bytes of new
text are taken for evicted. `observe` corrects the horizon by the cached tokens that the engine reports.

If an engine has a beginning, it has all shorter ones of the same prompt: they were used at least as lately.
"""

from collections import OrderedDict
from collections.abc import Iterable

from penstock.core.routing.prefix.prompt_prefix import PromptPrefix

# Most beginnings that a gateway keeps, over all engines. With that of Python's dictionaries, each takes about
# 200 bytes, so that all of them take 50 MB.
MAX_ENTRIES = 250_000
# Most of one engine. A cache of 1 M tokens has 8,000 beginnings of prompts that are 4,000 tokens long.
MAX_ENTRIES_OF_ENGINE = 16_384
# Most masks whose pods are kept at hand.
MAX_MASKS = 1024
# Part of a prompt that was to be cached, below which an answer is a miss, and above which it is a hit.
MISS_SHARE, HIT_SHARE = 0.5, 0.9
# A miss sets the horizon below the age of what was missed, but not below this part of the present one: the
# engine may have been about to compute the same beginning. A hit beyond HIT_AGE of the horizon extends it.
MISS_FACTOR, LEAST_FACTOR, HIT_FACTOR, HIT_AGE = 0.9, 0.5, 1.1, 0.5
# Least horizon, in bytes of text: less says that the engine has no cache at all.
LEAST_HORIZON = 1 << 14


class _EngineEntries:
    """Beginnings of one engine. bit: its place in the masks of the index.

    used: by the hash of a beginning, the position of the engine at its last use; the longest unused first.
    position: bytes of new text that the engine has got so far.
    """

    __slots__ = ("bit", "horizon", "position", "used")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.used: OrderedDict[int, float] = OrderedDict()
        self.position = 0.0
        self.horizon = float("inf")


class PrefixIndex:
    """Beginnings of prompts by engine. Single owner, no locks. Engines are named by pod "namespace/name"."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._masks: dict[int, int] = {}  # by hash, a bit for each engine that has the beginning
        self._engines: dict[str, _EngineEntries] = {}
        self._pods: dict[int, str] = {}  # by bit
        # Pods by mask, of the masks that were looked up: many requests share their first beginnings
        self._pods_by_mask: dict[int, tuple[str, ...]] = {}
        self._free_bits: list[int] = []

    def __len__(self) -> int:
        """Number of beginnings, each counted for every engine that has it."""
        return sum(len(each.used) for each in self._engines.values())

    def overlaps(self, prefix: PromptPrefix) -> dict[str, int]:
        """Bytes of the prompt that engines have, by the pod of each engine that has any.

        Binary search: the engines of a beginning are among those of each shorter one.
        """
        hashes, ends, masks = prefix.hashes, prefix.ends, self._masks
        found: dict[str, int] = {}
        if not hashes or not (mask := masks.get(hashes[0], 0)):
            return found
        # Each entry: engines that have the beginning `low`, and of which none has `high`.
        pending = [(0, len(hashes), mask)]
        while pending:
            low, high, mask = pending.pop()
            if high - low == 1:
                found.update(dict.fromkeys(self._pods_of(mask), ends[low]))
                continue
            middle = (low + high) // 2
            longer = masks.get(hashes[middle], 0) & mask
            if longer:
                pending.append((middle, high, longer))
            if longer != mask:
                pending.append((low, middle, mask ^ longer))
        return found

    def overlap(self, pod: str, prefix: PromptPrefix) -> int:
        """Bytes of the prompt that one engine has."""
        return self.overlaps(prefix).get(pod, 0)

    def add(self, pod: str, prefix: PromptPrefix, new_bytes: int) -> None:
        """Record that an engine gets a prompt. new_bytes: of its text that it has to compute."""
        entries = self._engines.get(pod) or self._new_engine(pod)
        entries.position += new_bytes
        used, bit, masks, position = entries.used, entries.bit, self._masks, entries.position
        # The shortest last, so that it is forgotten last.
        for each in reversed(prefix.hashes):
            if each not in used:
                masks[each] = masks.get(each, 0) | bit
            used[each] = position
            used.move_to_end(each)
        limit = min(MAX_ENTRIES_OF_ENGINE, self._max_entries // len(self._engines))
        oldest = position - entries.horizon
        while used and (len(used) > limit or used[next(iter(used))] < oldest):
            self._forget(entries, next(iter(used)))

    def age(self, pod: str, prefix: PromptPrefix, overlap_bytes: int) -> float | None:
        """Bytes of new text that the engine got since the last use of a beginning; None without a use."""
        entries = self._engines.get(pod)
        if entries is None or overlap_bytes not in prefix.ends:
            return None
        used = entries.used.get(prefix.hashes[prefix.ends.index(overlap_bytes)])
        return None if used is None else entries.position - used

    def observe(self, pod: str, age: float, cached_share: float) -> None:
        """Correct an engine's horizon by an answer.

        age: of the part of the prompt that was expected to be cached, when the request was sent.
        cached_share: the cached part that the engine reports, as a fraction of that part.
        """
        entries = self._engines.get(pod)
        if entries is None:
            return
        horizon = entries.horizon
        if cached_share < MISS_SHARE and age < horizon:
            least = 0.0 if horizon == float("inf") else horizon * LEAST_FACTOR
            entries.horizon = max(LEAST_HORIZON, least, age * MISS_FACTOR)
        elif cached_share >= HIT_SHARE and age > horizon * HIT_AGE:
            entries.horizon = max(horizon * HIT_FACTOR, age)

    def keep_only(self, pods: Iterable[str]) -> None:
        """Forget all engines but these. A pod that comes back has an empty cache."""
        for pod in self._engines.keys() - set(pods):
            entries = self._engines.pop(pod)
            for each in list(entries.used):
                self._forget(entries, each)
            del self._pods[entries.bit]
            self._free_bits.append(entries.bit)
            self._pods_by_mask.clear()

    def check(self) -> None:
        """Assert that masks and entries agree, and that the bound holds."""
        masks: dict[int, int] = {}
        for entries in self._engines.values():
            for each in entries.used:
                masks[each] = masks.get(each, 0) | entries.bit
        assert masks == self._masks
        bits = [each.bit for each in self._engines.values()]
        assert len({*bits, *self._free_bits}) == len(bits) + len(self._free_bits)

    def _pods_of(self, mask: int) -> tuple[str, ...]:
        """The pods of a mask."""
        if (known := self._pods_by_mask.get(mask)) is not None:
            return known
        if len(self._pods_by_mask) >= MAX_MASKS:
            self._pods_by_mask.clear()
        pods: list[str] = []
        left = mask
        while left:  # not all pods: a gateway may have a thousand, and a prompt a mask for each
            bit = left & -left
            pods.append(self._pods[bit])
            left ^= bit
        found = self._pods_by_mask[mask] = tuple(pods)
        return found

    def _new_engine(self, pod: str) -> _EngineEntries:
        bit = self._free_bits.pop() if self._free_bits else 1 << len(self._engines)
        entries = self._engines[pod] = _EngineEntries(bit)
        self._pods[bit] = pod
        self._pods_by_mask.clear()
        return entries

    def _forget(self, entries: _EngineEntries, each: int) -> None:
        del entries.used[each]
        if left := self._masks[each] & ~entries.bit:
            self._masks[each] = left
        else:
            del self._masks[each]
