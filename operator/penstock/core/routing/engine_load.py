"""What was sent to one engine and has not come back.

sent -> its prompt is computed -> it decodes -> it ends
"""

from dataclasses import dataclass, field

from penstock.core.routing.prefill_throughput import Pace

KV_LIMIT = 0.9


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request at the gateway. prefill_tokens, kv_tokens: what it adds to an engine's load."""

    request_id: str
    arrival_s: float
    deadline_s: float
    prefill_tokens: float
    kv_tokens: float


@dataclass(slots=True, kw_only=True)
class EngineLoad:
    """prefill_tokens: of prompts without a first token, less what is expected to be cached.
    kv_tokens: prompts and half of their expected outputs, as requests in flight are halfway on
    average.
    """

    pod: str
    kv_capacity_tokens: int
    pace: Pace = field(default_factory=Pace)
    prefill_tokens: float = 0.0
    kv_tokens: float = 0.0

    def is_sure(self) -> bool:
        """Until it is known how fast it is, an engine gets one prompt after the other."""
        return self.pace.is_known or not self.prefill_tokens

    def ttft_s(self, prefill_tokens: float) -> float:
        """Predicted for a prompt that goes next: all prompts sent before it come first."""
        return (self.prefill_tokens + prefill_tokens) / self.pace.prefill_tokens_per_s

    def has_kv_for(self, kv_tokens: float) -> bool:
        """An engine that holds nothing takes whatever comes."""
        total = self.kv_tokens + kv_tokens
        return not self.kv_tokens or total <= KV_LIMIT * self.kv_capacity_tokens


class Place:
    """One request on one engine, from when it is sent until it is over."""

    def __init__(self, load: EngineLoad, waiting: Waiting, now: float) -> None:
        self._load, self._waiting, self._sent_s = load, waiting, now
        load.prefill_tokens += waiting.prefill_tokens
        load.kv_tokens += waiting.kv_tokens
        self._ahead_tokens = load.prefill_tokens
        self._is_computed = self._is_over = False

    @property
    def pod(self) -> str:
        return self._load.pod

    @property
    def expected_s(self) -> float:
        """How long after it was sent the first token should come."""
        return self._ahead_tokens / self._load.pace.prefill_tokens_per_s

    def began(self, now: float) -> None:
        """Update the engine's prefill speed: the first token of an answer without error arrived."""
        load = self._load
        load.pace = load.pace.after_first_token(self._ahead_tokens, now - self._sent_s)
        self.computed()

    def computed(self) -> None:
        """Its prompt has no more to be computed."""
        if self._is_computed:
            return
        load = self._load
        self._is_computed = True
        load.prefill_tokens = max(0.0, load.prefill_tokens - self._waiting.prefill_tokens)

    def left(self) -> None:
        """It is over, however it ended."""
        if self._is_over:
            return
        self.computed()
        self._is_over = True
        self._load.kv_tokens = max(0.0, self._load.kv_tokens - self._waiting.kv_tokens)
