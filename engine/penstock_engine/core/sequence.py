"""State of one sequence in the scheduler."""

from enum import Enum

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.drafter import Drafter
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import TokenLogprobs


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """Tokens of a sequence, their block table, and how many of them are computed.

        0 <= num_cached_tokens                      read from the prefix cache when first admitted,
                                                    num_host_tokens of them from the host tier
        0 <= num_computed_tokens <= num_tokens      have keys and values in block_table
        num_prompt_tokens <= num_tokens             the rest was generated
        num_skipped_blocks <= len(block_table)      are not held: the first blocks, which are outside
                                                    the attention window of every later token

    A sequence whose num_computed_tokens reaches num_tokens samples its next token. Preemption
    sets num_computed_tokens back to 0 and keeps the tokens.

    priority: lower values are scheduled first. order: sort key, unique in a scheduler.
    ending_token_ids: tokens that end the sequence when sampled. adapter: the identity of loaded LoRA
    weights, or "". fork_of: request id of a sequence with the same prompt, whose blocks this one
    shares once they are filled. tpot_s: limit on the time per output token while prompts of other
    sequences are computed; None: no limit. preempted_s, resumed_s: times at which it was preempted and
    admitted again. Only the scheduler writes these fields.
    """

    __slots__ = (
        "adapter",
        "arrival_s",
        "block_hashes",
        "block_table",
        "cache_salt",
        "constraint",
        "drafter",
        "ending_token_ids",
        "eos_token_ids",
        "first_scheduled_s",
        "first_token_s",
        "fork_of",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_host_tokens",
        "num_prompt_tokens",
        "num_skipped_blocks",
        "num_waits",
        "order",
        "preempted_s",
        "priority",
        "prompt_logprobs",
        "request_id",
        "resumed_s",
        "sampling",
        "status",
        "tokens",
        "tpot_s",
    )

    def __init__(
        self,
        request_id: str,
        prompt: list[int],
        sampling: SamplingParams,
        eos_token_ids: frozenset[int],
        arrival_s: float,
        cache_salt: str = "",
        constraint: Constraint | None = None,
        priority: int = 0,
        adapter: str = "",
        fork_of: str = "",
        tpot_s: float | None = None,
    ) -> None:
        if not prompt:
            raise ValueError("a sequence needs at least one prompt token")
        self.request_id = request_id
        self.sampling = sampling
        self.eos_token_ids = eos_token_ids
        stop = sampling.stop_token_ids
        self.ending_token_ids = stop if sampling.ignore_eos else stop | eos_token_ids
        self.arrival_s = arrival_s
        self.cache_salt = cache_salt
        self.constraint = constraint
        self.priority = priority
        self.adapter = adapter
        self.fork_of = fork_of
        self.tpot_s = tpot_s
        self.order = (priority, 0)
        self.drafter: Drafter | None = None
        self.tokens = list(prompt)
        self.num_prompt_tokens = len(prompt)
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0
        self.num_host_tokens = 0
        self.num_skipped_blocks = 0
        self.num_waits = 0
        self.block_table: list[int] = []
        self.block_hashes: list[bytes] = []
        self.prompt_logprobs: list[TokenLogprobs] = []
        self.status = Status.WAITING
        self.first_scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.preempted_s: list[float] = []
        self.resumed_s: list[float] = []

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request_id!r}, {self.status.value}, prompt={self.num_prompt_tokens}, "
            f"computed={self.num_computed_tokens}/{self.num_tokens})"
        )

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_preemptions(self) -> int:
        return len(self.preempted_s)

    def pauses(self, now: float) -> tuple[tuple[float, float], ...]:
        """Start and end of each preemption. One that has not ended ends now."""
        return tuple(zip(self.preempted_s, [*self.resumed_s, now], strict=False))

    @property
    def num_output_tokens(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def held_blocks(self) -> list[int]:
        return self.block_table[self.num_skipped_blocks :]

    @property
    def has_computed_prompt(self) -> bool:
        return self.num_computed_tokens >= self.num_prompt_tokens

    @property
    def num_tokens_behind(self) -> int:
        """Number of tokens without keys and values yet; 1 for a sequence that decodes."""
        return len(self.tokens) - self.num_computed_tokens

    @property
    def num_prompt_tokens_pending(self) -> int:
        """Number of prompt tokens without keys and values yet."""
        return max(0, self.num_prompt_tokens - self.num_computed_tokens)

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether log-probabilities of prompt tokens, from the second on, are still to be computed."""
        is_requested = self.sampling.prompt_logprobs is not None
        return is_requested and len(self.prompt_logprobs) < self.num_prompt_tokens - 1
