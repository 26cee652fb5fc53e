"""Baseline: llm-d's router with its default configuration.

Read in llm-d/llm-d-router: config/loader/defaults.go at 0b59e4ed (weights), approximateprefix/types.go
and plugin.go at 09a534fc (index), scorer/prefix/plugin.go at 068b68d0; the scorers of queue and KV cache in
kubernetes-sigs/gateway-api-inference-extension at cb1c67d3 and 33173e4c.
"""

from collections import OrderedDict
from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.sim.request import Request
from penstock.sim.routing.least_loaded import lowest
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView

QUEUE_WEIGHT, KV_WEIGHT, PREFIX_WEIGHT = 2.0, 2.0, 3.0
MAX_PREFIX_TOKENS = 131_072
# The index has as many entries for an engine as the engine reports KV blocks. vLLM's have 16 tokens, but
# the router hashes at least 64 tokens for an entry.
INDEX_SIZE = 4.0
# After so long without a pod its entries are dropped. A pod that is back before keeps them.
CLEAN_UP_S = 120.0


class PrefixIndex:
    """Least recently used blocks of each engine, by what was sent to it.

    Blocks are their ids: equal ids mean equal tokens from the start of the prompt.
    """

    def __init__(self, index_size: float) -> None:
        self._index_size = index_size
        self._by_pod: dict[str, OrderedDict[int, None]] = {}

    def add(self, blocks: Sequence[int], engine: EngineView) -> None:
        """Add the blocks of a prompt that is sent to an engine."""
        entries = self._by_pod.setdefault(engine.pod, OrderedDict())
        for block in blocks:
            entries[block] = None
            entries.move_to_end(block)
        while len(entries) > self._index_size * engine.num_blocks:
            entries.popitem(last=False)

    def num_matching(self, blocks: Sequence[int], pod: str) -> int:
        """Number of leading blocks that are in the index of an engine."""
        entries = self._by_pod.get(pod) or OrderedDict()
        return next((i for i, block in enumerate(blocks) if block not in entries), len(blocks))

    def drop(self, pod: str) -> None:
        self._by_pod.pop(pod, None)


class LlmD(Picker):
    """Highest weighted sum of the scores of queue, KV cache and prefix.

    Queue: 1 for the shortest and 0 for the longest one. KV cache: the part that is free. Prefix: the part of
    the prompt's blocks that the index has. Metrics are scraped every 50 ms. Equal ones are drawn.
    index_size: entries of the index of an engine, as a multiple of its KV blocks.
    """

    scrape_s = 0.05

    def __init__(self, index_size: float = INDEX_SIZE) -> None:
        self._index = PrefixIndex(index_size)
        self._removed_s: dict[str, float] = {}
        self._views: dict[str, EngineView] = {}

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        self._clean_up(now)
        queues = [engine.metrics.waiting for engine in engines]
        shortest, longest = min(queues), max(queues)
        block_tokens = engines[0].block_tokens
        num_blocks = -(-min(request.prompt_tokens, MAX_PREFIX_TOKENS) // block_tokens)
        blocks = request.prefix[:num_blocks]

        def cost(engine: EngineView) -> float:
            queue = 1.0
            if longest > shortest:
                queue = (longest - engine.metrics.waiting) / (longest - shortest)
            prefix = self._index.num_matching(blocks, engine.pod) / num_blocks
            free = 1 - engine.metrics.kv_usage
            return -(QUEUE_WEIGHT * queue + KV_WEIGHT * free + PREFIX_WEIGHT * prefix)

        chosen = lowest(engines, cost, draw)
        self._index.add(blocks, chosen)
        return chosen

    def engine_added(self, engine: EngineView, now: float) -> None:
        self._clean_up(now)
        self._removed_s.pop(engine.pod, None)

    def engine_removed(self, pod: str, now: float) -> None:
        self._removed_s[pod] = now

    def _clean_up(self, now: float) -> None:
        for pod in [p for p, at_s in self._removed_s.items() if now >= at_s + CLEAN_UP_S]:
            self._index.drop(pod)
            del self._removed_s[pod]
