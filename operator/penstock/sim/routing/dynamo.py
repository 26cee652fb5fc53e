"""Baseline: Dynamo's KV router with its default configuration.

Read in ai-dynamo/dynamo: lib/kv-router/src/scheduling/selector/default.rs at 07a6c9ce, and its documentation
"Routing Concepts" at 03037af0.
"""

from collections import Counter
from collections.abc import Sequence

from penstock.core.admission.engine_load import Waiting
from penstock.sim.block_hashes import block_hashes
from penstock.sim.request import Request
from penstock.sim.routing.least_loaded import lowest
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.view import EngineView

# overlap_score_credit and prefill_load_scale. router_temperature is 0: the lowest cost wins.
OVERLAP_CREDIT, PREFILL_SCALE = 1.0, 1.0


class ActiveBlocks:
    """Load that a router has in flight at one engine.

    prefill_tokens: of prompts without a first token, less their cached tokens. blocks: holders of each block
    of the prompts in flight; a shared one counts once. Blocks of answers are not counted.
    """

    def __init__(self) -> None:
        self.prefill_tokens = 0
        self.blocks: Counter[bytes] = Counter()
        self.num_partial = 0  # last blocks of prompts, which nobody shares

    def potential_blocks(self, hashes: Sequence[bytes]) -> int:
        """Active blocks with one more prompt."""
        num_new = sum(each not in self.blocks for each in hashes)
        return len(self.blocks) + self.num_partial + num_new + 1

    def add(self, hashes: Sequence[bytes], prefill_tokens: int) -> None:
        self.prefill_tokens += prefill_tokens
        self.blocks.update(hashes)
        self.num_partial += 1

    def remove(self, hashes: Sequence[bytes]) -> None:
        self.num_partial -= 1
        for each in hashes:
            self.blocks[each] -= 1
            if not self.blocks[each]:
                del self.blocks[each]


class Dynamo(Picker):
    """Lowest cost in blocks: prompts to compute, with this one less its cached blocks, and active blocks.

    Block events tell it which blocks an engine has cached, without delay. Equal costs are drawn.
    """

    def __init__(self) -> None:
        self._active: dict[str, ActiveBlocks] = {}
        # Block hashes and prefill tokens of each request in flight; no tokens after its first token
        self._sent: dict[str, tuple[list[bytes], int]] = {}

    def pick(
        self,
        request: Request,
        waiting: Waiting,
        engines: Sequence[EngineView],
        now: float,
        draw: float,
    ) -> EngineView:
        block_tokens = engines[0].block_tokens
        hashes = block_hashes(request, block_tokens)
        resident = {engine.pod: engine.num_resident_blocks(hashes) for engine in engines}

        def cost(engine: EngineView) -> float:
            active = self._active[engine.pod]
            prefill = (active.prefill_tokens + request.prompt_tokens) / block_tokens
            prefill = max(0.0, prefill - OVERLAP_CREDIT * resident[engine.pod])
            return PREFILL_SCALE * prefill + active.potential_blocks(hashes)

        chosen = lowest(engines, cost, draw)
        prefill_tokens = request.prompt_tokens - resident[chosen.pod] * block_tokens
        self._active[chosen.pod].add(hashes, prefill_tokens)
        self._sent[request.request_id] = (hashes, prefill_tokens)
        return chosen

    def first_token(self, request: Request, now: float) -> None:
        hashes, prefill_tokens = self._sent[request.request_id]
        self._active[request.pod].prefill_tokens -= prefill_tokens
        self._sent[request.request_id] = (hashes, 0)

    def ended(self, request: Request, now: float) -> None:
        hashes, prefill_tokens = self._sent.pop(request.request_id)
        self._active[request.pod].prefill_tokens -= prefill_tokens
        self._active[request.pod].remove(hashes)

    def engine_added(self, engine: EngineView, now: float) -> None:
        self._active.setdefault(engine.pod, ActiveBlocks())
