"""Load of one engine: the requests that were sent to it and have not ended.

sent -> prefill done -> decoding -> ended
"""

from dataclasses import dataclass, field

from penstock.core.admission.batch_window import BatchWindow
from penstock.core.admission.prefill_throughput import PrefillThroughput
from penstock.core.admission.requester import ANYBODY, Requester
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.core.tenants.tenant import BATCH_PRIORITY

# Fraction of the KV cache that the predicted load may fill; beyond it, sequences may be preempted.
KV_LIMIT = 0.9


@dataclass(frozen=True, slots=True)
class Waiting:
    """Request that waits at the gateway."""

    request_id: str
    arrival_s: float
    deadline_s: float
    # prefill_tokens, kv_tokens: its load on an engine
    prefill_tokens: float
    kv_tokens: float
    attributes: RequestAttributes  # for scorers
    # Name in engines of the adapter that it is for; empty: it is for the base model
    adapter: str = ""
    requester: Requester = ANYBODY

    @property
    def is_batch(self) -> bool:
        """Whether it may only use what other requests leave idle."""
        return self.requester.priority <= BATCH_PRIORITY


@dataclass(slots=True, kw_only=True)
class EngineLoad:
    """Predicted load of one engine."""

    pod: str
    kv_capacity_tokens: int
    throughput: PrefillThroughput = field(default_factory=PrefillThroughput)
    # Tokens of prompts without a first token, less the expected prefix-cache hits; in all and by tenant
    prefill_tokens: float = 0.0
    prefill_by_tenant: dict[str, float] = field(default_factory=dict)
    # Tokens of prompts and half of their expected outputs: requests in flight are halfway on average
    kv_tokens: float = 0.0
    num_batch: int = 0  # requests of batches among those in flight
    batch_window: BatchWindow = field(default_factory=BatchWindow)

    def is_sure(self) -> bool:
        """Whether the prediction is reliable.

        Until the throughput is known, an engine gets one prompt at a time.
        """
        return self.throughput.is_known or not self.prefill_tokens

    def ttft_s(self, prefill_tokens: float) -> float:
        """Predicted TTFT of a prompt that is sent now, after all prompts sent before it."""
        return (self.prefill_tokens + prefill_tokens) / self.throughput.prefill_tokens_per_s

    def add_prefill(self, tenant: str, tokens: float) -> None:
        """Add prompt tokens of a tenant to the work before the first tokens; negative: they are computed."""
        self.prefill_tokens = max(0.0, self.prefill_tokens + tokens)
        own = self.prefill_by_tenant.get(tenant, 0.0) + tokens
        if own > 0:
            self.prefill_by_tenant[tenant] = own
        else:
            self.prefill_by_tenant.pop(tenant, None)

    def has_kv_for(self, kv_tokens: float) -> bool:
        """Whether the KV cache has room. An empty engine takes any request."""
        total = self.kv_tokens + kv_tokens
        return not self.kv_tokens or total <= KV_LIMIT * self.kv_capacity_tokens


class Placement:
    """Load that a request puts on an engine, from when it is sent until it ends."""

    def __init__(self, load: EngineLoad, waiting: Waiting, now: float) -> None:
        self._load, self._waiting, self._sent_s = load, waiting, now
        self._number = load.batch_window.note_sent()
        load.kv_tokens += waiting.kv_tokens
        load.num_batch += waiting.is_batch
        load.add_prefill(waiting.requester.tenant, waiting.prefill_tokens)
        self._ahead_tokens = load.prefill_tokens
        self._is_computed = self._is_over = False

    @property
    def pod(self) -> str:
        return self._load.pod

    @property
    def expected_s(self) -> float:
        """Predicted seconds from sending to the first token."""
        return self._ahead_tokens / self._load.throughput.prefill_tokens_per_s

    def first_token(self, now: float) -> None:
        """Update the engine's prefill speed: the first token of an answer without error arrived."""
        load = self._load
        load.throughput = load.throughput.after_first_token(self._ahead_tokens, now - self._sent_s)
        self.computed()

    def computed(self) -> None:
        """Remove the prompt from the engine's prefill load. Idempotent."""
        if self._is_computed:
            return
        load = self._load
        self._is_computed = True
        load.add_prefill(self._waiting.requester.tenant, -self._waiting.prefill_tokens)

    def answered(self, time_share: float) -> None:
        """Update the bound on batches. time_share: of the answer, as a part of what the objectives allow."""
        window, is_batch = self._load.batch_window, self._waiting.is_batch
        window.note_answer(self._number, time_share, is_batch=is_batch)

    def release(self) -> None:
        """Remove the request from the engine's load, whatever its outcome. Idempotent."""
        if self._is_over:
            return
        self.computed()
        self._is_over = True
        self._load.kv_tokens = max(0.0, self._load.kv_tokens - self._waiting.kv_tokens)
        self._load.num_batch -= self._waiting.is_batch
