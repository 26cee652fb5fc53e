"""The engines that a gateway sends requests to: their loads, and the prompts that they have cached.

All requests of a gateway are sent here, those with an admission queue and those without.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from penstock.core.admission.engine_kind import EngineKind
from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.admission.placement import Placement
from penstock.core.routing.cost import Candidates, choose
from penstock.core.routing.prefix.index import PrefixIndex
from penstock.core.routing.prefix.prompt_prefix import PromptPrefix

# A gateway does not know how large KV caches are. The engine's own queue guards them.
UNKNOWN_CAPACITY_TOKENS = 1 << 62


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine that was chosen for a request.

    index: among those that it was chosen from. uncached_tokens: of the prompt, as expected.
    """

    load: EngineLoad
    index: int
    uncached_tokens: float


class Engines:
    """Loads of engines by pod "namespace/name". Single owner, no locks."""

    def __init__(self) -> None:
        self.loads: dict[str, EngineLoad] = {}
        self.index = PrefixIndex()
        # Pods that have reported cached tokens. What others have cached is a hope: it decides where a request
        # goes, but not how many of them an engine can take.
        self._reporting: set[str] = set()

    @property
    def tokens(self) -> dict[str, float]:
        """Tokens in flight by pod, of those that have any."""
        return {pod: load.kv_tokens for pod, load in self.loads.items() if load.kv_tokens}

    def load(
        self,
        pod: str,
        kind: EngineKind,
        kv_capacity_tokens: int = UNKNOWN_CAPACITY_TOKENS,
    ) -> EngineLoad:
        """The load of an engine. kind: of a new one."""
        load = self.loads.get(pod)
        if load is None:
            load = EngineLoad(pod=pod, kv_capacity_tokens=kv_capacity_tokens, kind=kind)
            self.loads[pod] = load
        return load

    def of(self, pods: Sequence[str]) -> list[EngineLoad]:
        """The loads of engines of one kind."""
        loads = self.loads
        try:
            return [loads[pod] for pod in pods]
        except KeyError:
            kind = next((loads[pod].kind for pod in pods if pod in loads), None) or EngineKind()
            return [self.load(pod, kind) for pod in pods]

    def reported_tokens(
        self, prefix: PromptPrefix, prompt_tokens: float, pods: AbstractSet[str]
    ) -> dict[str, float]:
        """Tokens of a prompt that engines have cached, by pod, of those that report cached tokens."""
        if not self._reporting:
            return {}
        token = prompt_tokens / max(1, prefix.length)
        overlaps, pods = self.index.overlaps(prefix), pods & self._reporting
        return {pod: token * end for pod, end in overlaps.items() if pod in pods}

    def choose(
        self, waiting: Waiting, loads: Sequence[EngineLoad], now: float, draw: float
    ) -> Chosen:
        """Choose the engine of a request that is sent now. draw: uniform in [0, 1)."""
        tokens = waiting.prompt_tokens
        overlaps, uncached = self.index.overlaps(waiting.prefix), [tokens] * len(loads)
        if overlaps:
            token = tokens / waiting.prefix.length
            uncached = [tokens - token * overlaps.get(load.pod, 0) for load in loads]
        output_tokens = 2 * max(0.0, waiting.kv_tokens - tokens)
        candidates = Candidates(loads, uncached, output_tokens, now)
        index = choose(candidates, draw, waiting.home)
        return Chosen(loads[index], index, uncached[index])

    def send(self, waiting: Waiting, load: EngineLoad, now: float) -> Placement:
        """Put a request on an engine, which computes its prompt and then has it cached."""
        pod, prefix, tokens = load.pod, waiting.prefix, waiting.prompt_tokens
        if not tokens or not prefix.length:
            return Placement(load, waiting, tokens, now)
        overlap_bytes = self.index.overlap(pod, prefix)
        cached = overlap_bytes / prefix.length
        age = self.index.age(pod, prefix, overlap_bytes)
        self.index.add(pod, prefix, prefix.length - overlap_bytes)
        prefill_tokens = tokens * (1 - cached) if pod in self._reporting else tokens
        return Placement(load, waiting, prefill_tokens, now, cached, age)

    def note_cached(self, placement: Placement, prompt_tokens: int, cached: int | None) -> None:
        """Learn from an answer how much of its prompt was cached.

        cached: None: the engine says nothing. vLLM does not report a number of 0.
        """
        pod = placement.pod
        if cached:
            self._reporting.add(pod)
        if placement.age is None or prompt_tokens <= 0 or pod not in self._reporting:
            return
        share = (cached or 0) / prompt_tokens / placement.expected_cached
        self.index.observe(pod, placement.age, share)

    def keep_only(self, pods: AbstractSet[str], ready: AbstractSet[str]) -> None:
        """Forget all engines but these, and what others than the ready ones have cached."""
        for pod in self.loads.keys() - pods:
            self.loads.pop(pod).kind.listeners.pop(pod, None)
        self._reporting &= pods
        self.index.keep_only(ready)
