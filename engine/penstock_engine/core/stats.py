"""What the scheduler counts, and its state of one moment."""

from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class Counters:
    """Since the start.

    Prefix queries and hits are counted once for each sequence, when it is first admitted. Prompt
    tokens are counted when their sequence yields its first token. drafts: guesses made for a
    sequence in one step; drafts_right_by_position: how often the nth token of one was right.
    """

    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    preemptions: int = 0
    prompt_tokens_computed: int = 0
    prompt_tokens_cached: int = 0
    generation_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    drafts_right_by_position: list[int] = field(default_factory=list)

    def draft_judged(self, num_drafts: int, num_right: int) -> None:
        self.drafts += 1
        self.draft_tokens += num_drafts
        missing = num_drafts - len(self.drafts_right_by_position)
        self.drafts_right_by_position += [0] * missing
        for position in range(num_right):
            self.drafts_right_by_position[position] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStats:
    """Gauges, and the counters as they stood."""

    running: int
    waiting: int
    kv_usage: float
    prefill_tokens_pending: int
    prefix_queries_tokens: int
    prefix_hits_tokens: int
    preemptions: int
    prompt_tokens_computed: int
    prompt_tokens_cached: int
    generation_tokens: int
    drafts: int
    draft_tokens: int
    drafts_right_by_position: tuple[int, ...]

    @classmethod
    def of(
        cls, counters: Counters, *, running: int, waiting: int, kv_usage: float,
        prefill_tokens_pending: int,
    ) -> "SchedulerStats":  # fmt: skip
        counted = asdict(counters)
        counted["drafts_right_by_position"] = tuple(counters.drafts_right_by_position)
        return cls(
            running=running,
            waiting=waiting,
            kv_usage=kv_usage,
            prefill_tokens_pending=prefill_tokens_pending,
            **counted,
        )
