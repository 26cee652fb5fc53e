"""State of one sequence in the scheduler."""

from dataclasses import InitVar, dataclass, field
from enum import Enum

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.drafter import Drafter
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import TokenLogprobs


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False, repr=False)
class Sequence:
    """Tokens of a sequence, their block table, and how many of them are computed.

        0 <= num_cached_tokens                      read from the prefix cache when first admitted,
                                                    num_host_tokens of them from the host tier
        0 <= num_computed_tokens <= num_tokens      have keys and values in block_table
        num_prompt_tokens <= num_tokens             the rest was generated
        num_skipped_blocks <= len(block_table)      are not held: the first blocks, which are outside
                                                    the attention window of every later token

    A sequence whose num_computed_tokens reaches num_tokens samples its next token. Preemption
    sets num_computed_tokens back to 0 and keeps the tokens. Only the scheduler writes these fields.
    """

    request_id: str
    prompt: InitVar[list[int]]
    sampling: SamplingParams
    eos_token_ids: InitVar[frozenset[int]]
    arrival_s: float
    cache_salt: str = ""
    constraint: Constraint | None = None
    priority: int = 0  # lower values are scheduled first
    adapter: str = ""  # the identity of loaded LoRA weights, or ""
    # Request id of a sequence with the same prompt, whose blocks this one shares once they are filled
    fork_of: str = ""
    # Limit on the time per output token while prompts of other sequences are computed; None: no limit
    tpot_s: float | None = None
    order: tuple[int, int] = field(init=False)  # sort key, unique in a scheduler
    # Tokens that end the sequence when sampled
    ending_token_ids: frozenset[int] = field(init=False)
    drafter: Drafter | None = field(default=None, init=False)
    tokens: list[int] = field(init=False)
    num_prompt_tokens: int = field(init=False)
    num_computed_tokens: int = field(default=0, init=False)
    num_cached_tokens: int = field(default=0, init=False)
    num_host_tokens: int = field(default=0, init=False)
    num_skipped_blocks: int = field(default=0, init=False)
    num_waits: int = field(default=0, init=False)
    block_table: list[int] = field(default_factory=list, init=False)
    block_hashes: list[bytes] = field(default_factory=list, init=False)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list, init=False)
    status: Status = field(default=Status.WAITING, init=False)
    first_scheduled_s: float | None = field(default=None, init=False)
    first_token_s: float | None = field(default=None, init=False)
    # preempted_s, resumed_s: times at which it was preempted and admitted again
    preempted_s: list[float] = field(default_factory=list, init=False)
    resumed_s: list[float] = field(default_factory=list, init=False)

    def __post_init__(self, prompt: list[int], eos_token_ids: frozenset[int]) -> None:
        if not prompt:
            raise ValueError("a sequence needs at least one prompt token")
        stop = self.sampling.stop_token_ids
        self.ending_token_ids = stop if self.sampling.ignore_eos else stop | eos_token_ids
        self.order = (self.priority, 0)
        self.tokens = list(prompt)
        self.num_prompt_tokens = len(prompt)

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
