"""Load that one request puts on an engine."""

from penstock.core.admission.engine_load import EngineLoad, Waiting
from penstock.core.engine_time.first_token import LEAST_S, PromptWork

# Slowdown of an engine's prompts above which its first tokens do not tell what tokens cost.
MAX_MODEL_SLOWDOWN = 1.5


class Placement:
    """Load that a request puts on an engine, from when it is sent until it ends.

    prefill_tokens: of its prompt, which the engine has to compute. expected_s: predicted seconds from sending
    to the first token. expected_cached: part of the prompt that the engine was expected to have cached. age:
    bytes of text that it got since the last use of that part; None: it was expected to have nothing.
    """

    def __init__(
        self,
        load: EngineLoad,
        waiting: Waiting,
        prefill_tokens: float,
        now: float,
        expected_cached: float = 0.0,
        age: float | None = None,
    ) -> None:
        self._load, self._waiting, self._sent_s = load, waiting, now
        self._number = load.batch_window.note_sent()
        self._prefill_tokens = prefill_tokens
        self.expected_cached, self.age = expected_cached, age
        self.expected_s = load.ttft_s(prefill_tokens, now)
        ahead_tokens = load.wait_s(now) / load.token_s if load.token_s else load.prefill_tokens
        self._work = PromptWork(
            ahead_tokens + self._prefill_tokens, load.num_decoding, load.decoding_kv_tokens
        )
        self._is_computed = self._is_over = False
        self._is_behind = load.num_prompts > 0
        if not self._is_behind:
            load.head_since_s = now
            load.prompt_slowdown.reset()
        load.num_prompts += 1
        load.kv_tokens += waiting.kv_tokens
        load.num_batch += waiting.is_batch
        load.add_prefill(waiting.requester.tenant, self._prefill_tokens)
        load.refresh()

    @property
    def pod(self) -> str:
        return self._load.pod

    def first_token(self, now: float) -> None:
        """Update the engine's model: the first token of an answer without error arrived."""
        load = self._load
        if load.num_prompts > 1 and self._is_behind:
            prompt_s = self._prefill_tokens * load.token_s
            load.prompt_slowdown.note(now - load.head_since_s, prompt_s)
        if load.prompt_slowdown.factor < MAX_MODEL_SLOWDOWN:
            took_s, kind = now - self._sent_s, load.kind
            if kind.model.is_known:
                load.speed.note(took_s / max(LEAST_S, kind.model.predict_s(self._work)))
            kind.first_token(self._work, took_s / load.speed.factor, now)
        self.computed(now)

    def computed(self, now: float) -> None:
        """Move the request from the engine's prompts to its decoding sequences. Idempotent."""
        if self._is_computed:
            return
        load = self._load
        self._is_computed = True
        load.num_prompts -= 1
        load.add_prefill(self._waiting.requester.tenant, -self._prefill_tokens)
        load.num_decoding += 1
        load.decoding_kv_tokens += self._waiting.kv_tokens
        load.head_since_s = now
        load.refresh()

    def answered(self, time_share: float) -> None:
        """Update the bound on batches. time_share: of the answer, as a part of what the objectives allow."""
        window, is_batch = self._load.batch_window, self._waiting.is_batch
        window.note_answer(self._number, time_share, is_batch=is_batch)

    def release(self, now: float) -> None:
        """Remove the request from the engine's load, whatever its outcome. Idempotent."""
        if self._is_over:
            return
        self.computed(now)
        self._is_over = True
        load = self._load
        load.kv_tokens = max(0.0, load.kv_tokens - self._waiting.kv_tokens)
        load.num_batch -= self._waiting.is_batch
        load.num_decoding -= 1
        load.decoding_kv_tokens = max(0.0, load.decoding_kv_tokens - self._waiting.kv_tokens)
        load.refresh()
