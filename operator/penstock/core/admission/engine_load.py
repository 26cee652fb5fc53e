"""Load of one engine: the requests that were sent to it and have not ended.

sent -> prefill done -> decoding -> ended
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.admission.batch_window import BatchWindow
from penstock.core.admission.engine_kind import EngineKind
from penstock.core.admission.requester import ANYBODY, Requester
from penstock.core.engine_time.prompt_slowdown import PromptSlowdown
from penstock.core.engine_time.relative_speed import RelativeSpeed
from penstock.core.routing.prefix.prompt_prefix import PromptPrefix
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.core.tenants.tenant import BATCH_PRIORITY

# Fraction of the KV cache that the predicted load may fill; beyond it, sequences may be preempted.
KV_LIMIT = 0.9
# Part of the predicted time of prompts that is still to come while they have no first token, however long
# they have taken.
LEAST_LEFT = 0.03


@dataclass(frozen=True, slots=True)
class Waiting:
    """Request that waits at the gateway."""

    request_id: str
    arrival_s: float
    deadline_s: float
    prompt_tokens: float  # all of its prompt
    kv_tokens: float  # its load on an engine
    attributes: RequestAttributes
    # Name in engines of the adapter that it is for; empty: it is for the base model
    adapter: str = ""
    requester: Requester = ANYBODY
    # Tokens of the prompt that engines were expected to have cached when it arrived, by pod
    cached_tokens: Mapping[str, float] = field(default_factory=dict)
    # Key of requests that go to the same engine if they can; None: it has none
    home: bytes | None = None
    # Tokens that the engine with the most of the prompt has to compute
    prefill_tokens: float = field(init=False)
    # Beginnings of the prompt, as the model or the adapter computes them
    prefix: PromptPrefix = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", self.attributes.prefix.with_space(self.adapter))
        most = max(self.cached_tokens.values(), default=0.0)
        object.__setattr__(self, "prefill_tokens", self.prompt_tokens - most)

    @property
    def is_batch(self) -> bool:
        """Whether it may only use what other requests leave idle."""
        return self.requester.priority <= BATCH_PRIORITY

    def uncached_tokens(self, pod: str) -> float:
        """Tokens of the prompt that an engine has to compute."""
        return self.prompt_tokens - self.cached_tokens.get(pod, 0.0)


@dataclass(slots=True, kw_only=True)
class EngineLoad:
    """Predicted load of one engine."""

    pod: str
    kv_capacity_tokens: int
    kind: EngineKind = field(default_factory=EngineKind)
    speed: RelativeSpeed = field(default_factory=RelativeSpeed)
    # Tokens of prompts without a first token, less the expected prefix-cache hits; in all and by tenant
    prefill_tokens: float = 0.0
    prefill_by_tenant: dict[str, float] = field(default_factory=dict)
    # Tokens of prompts and half of their expected outputs: requests in flight are halfway on average
    kv_tokens: float = 0.0
    num_batch: int = 0  # requests of batches among those in flight
    batch_window: BatchWindow = field(default_factory=BatchWindow)
    num_prompts: int = 0  # requests without a first token
    num_decoding: int = 0  # requests with one, whose KV tokens are decoding_kv_tokens
    decoding_kv_tokens: float = 0.0
    head_since_s: float = 0.0  # since when the first of its prompts is computed
    prompt_slowdown: PromptSlowdown = field(default_factory=PromptSlowdown)
    step_s: float = field(init=False)  # of an iteration without prompts
    token_s: float = field(init=False)  # of a prompt token
    # When its prompts are predicted to be computed; not before least_wait_s from now
    free_s: float = field(init=False)
    least_wait_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.refresh()
        self.kind.listeners[self.pod] = self.refresh

    def refresh(self) -> None:
        """Compute the predicted times again after a change."""
        model, factor = self.kind.model, self.speed.factor
        step_s = model.step_s(self.num_decoding, self.decoding_kv_tokens)
        self.step_s, self.token_s = factor * step_s, factor * model.token_s(step_s)
        backlog_s = self.prefill_tokens * self.token_s * self.prompt_slowdown.factor
        self.free_s = self.head_since_s + backlog_s
        self.least_wait_s = LEAST_LEFT * backlog_s

    @property
    def num_active(self) -> int:
        """Number of requests in flight."""
        return self.num_prompts + self.num_decoding

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prompt tokens that it computes each second; infinite until an answer was measured."""
        is_known = self.kind.model.is_known and self.token_s > 0
        return 1 / self.token_s if is_known else float("inf")

    def is_sure(self) -> bool:
        """Whether the prediction is reliable.

        Until an answer was measured, an engine gets one prompt at a time.
        """
        return self.kind.model.is_known or not self.prefill_tokens

    def wait_s(self, now: float) -> float:
        """Predicted time until the prompts that it has are computed."""
        return max(self.least_wait_s, self.free_s - now)

    def ttft_s(self, prefill_tokens: float, now: float) -> float:
        """Predicted TTFT of a prompt that is sent now; 0 until an answer was measured."""
        if not self.kind.model.is_known:
            return 0.0
        return self.wait_s(now) + self.step_s + self.token_s * prefill_tokens

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
