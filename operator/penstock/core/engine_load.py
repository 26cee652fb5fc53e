"""What was sent to one engine and has not come back, and the time that it has for prompts.

    sent -> its prompt is computed -> it decodes -> it ends

While requests decode on an engine, prompts may take only the part of its time that their TPOT
objective leaves: 1 - (time of a step without prompts) / (what the objective allows). It is kept as
credit, in seconds: time gives it, each prompt takes what it is expected to take, and with a debt no
prompt is sent. An engine of which nobody knows how long a step takes has no such bound.
"""

from dataclasses import dataclass, field

from penstock.core.pace import Pace

KV_LIMIT = 0.9
# Credit for so long may be saved up: what a mean over an answer of some hundred tokens forgives.
SAVED_S = 1.0
# Of the objective, what those that decode are held to. How long a step takes is learned of answers
# that have ended; while a queue builds up steps become longer.
TPOT_SHARE = 0.8
# Prompts get so much of an engine's time however slow its steps are.
LEAST_SHARE = 0.1


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
    average. decoding: requests after their first token. prompts_s: how long it computed prompts.
    """

    pod: str
    kv_capacity_tokens: int
    pace: Pace = field(default_factory=Pace)
    prefill_tokens: float = 0.0
    kv_tokens: float = 0.0
    decoding: int = 0
    prompts_s: float = 0.0
    credit_s: float = 0.0
    _share: float = 1.0
    _at_s: float = 0.0

    def look(self, now: float, tpot_s: float | None) -> None:
        """Let time pass until now. tpot_s: the objective of those that decode."""
        gained_s = self._share * (now - self._at_s)
        self._at_s = now
        self._share = 1.0
        if tpot_s is not None and self.decoding:
            self._share = max(
                LEAST_SHARE, 1 - self.pace.decode_s(self.kv_tokens) / (TPOT_SHARE * tpot_s)
            )
        self.credit_s = min(self._share * SAVED_S, self.credit_s + gained_s)

    @property
    def delay_s(self) -> float:
        """Until the next prompt may be sent."""
        return max(0.0, -self.credit_s / self._share) if self._share < 1 else 0.0

    def is_sure(self) -> bool:
        """Until it is known how fast it is, an engine gets one prompt after the other."""
        return self.pace.is_known or not self.prefill_tokens

    def ttft_s(self, prefill_tokens: float) -> float:
        """Predicted for a prompt that goes next: all prompts sent before it come first."""
        ahead_s = (self.prefill_tokens + prefill_tokens) / self.pace.prefill_tokens_per_s
        return self.delay_s + ahead_s

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
        load.credit_s -= waiting.prefill_tokens / load.pace.prefill_tokens_per_s
        self._ahead_tokens = load.prefill_tokens
        self._is_computed = self._is_over = False
        self._prompts_s = self._kv_tokens = 0.0  # of the engine, when the first token came

    @property
    def pod(self) -> str:
        return self._load.pod

    @property
    def expected_s(self) -> float:
        """How long after it was sent the first token should come."""
        return self._ahead_tokens / self._load.pace.prefill_tokens_per_s

    def began(self, now: float) -> None:
        """Its first token came."""
        load = self._load
        load.pace = load.pace.after_first_token(self._ahead_tokens, now - self._sent_s)
        self.computed()

    def computed(self) -> None:
        """Its prompt has no more to be computed."""
        if self._is_computed:
            return
        load, tokens = self._load, self._waiting.prefill_tokens
        self._is_computed = True
        load.prefill_tokens = max(0.0, load.prefill_tokens - tokens)
        load.prompts_s += tokens / load.pace.prefill_tokens_per_s
        load.decoding += 1
        self._prompts_s, self._kv_tokens = load.prompts_s, load.kv_tokens

    def answered(self, steps: int, took_s: float) -> None:
        """After its first token so many more came, in so much time."""
        load = self._load
        beside_s = load.prompts_s - self._prompts_s
        kv_tokens = (self._kv_tokens + load.kv_tokens) / 2
        load.pace = load.pace.after_answer(steps, took_s, beside_s, kv_tokens)

    def left(self) -> None:
        """It is over, however it ended."""
        if self._is_over:
            return
        self.computed()
        self._is_over = True
        self._load.decoding -= 1
        self._load.kv_tokens = max(0.0, self._load.kv_tokens - self._waiting.kv_tokens)
