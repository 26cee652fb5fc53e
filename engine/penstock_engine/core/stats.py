"""What the scheduler counts, and its state of one moment."""

from dataclasses import dataclass, field

from penstock_engine.core.copying import Choice


@dataclass(slots=True)
class Counters:
    """Since the start.

    Prefix queries and hits are counted once for each sequence, when it is first admitted. Prompt
    tokens are counted when their sequence yields its first token. drafts: guesses made for a
    sequence in one step; drafts_right_by_position: how often the nth token of one was right.
    waits_for_blocks: sequences that reached the head of the queue and found too few free blocks.
    rejections: sequences whose prompt exceeds the whole pool, but not the model's limit. busy_s: time
    during which some step was computed.
    """

    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    preemptions: int = 0
    prompt_tokens_computed: int = 0
    prompt_tokens_cached: int = 0
    prompt_tokens_from_host: int = 0
    generation_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    drafts_right_by_position: list[int] = field(default_factory=list)
    waits_for_blocks: int = 0
    rejections: int = 0
    busy_s: float = 0.0

    def draft_judged(self, num_drafts: int, num_right: int) -> None:
        self.drafts += 1
        self.draft_tokens += num_drafts
        missing = num_drafts - len(self.drafts_right_by_position)
        self.drafts_right_by_position += [0] * missing
        for position in range(num_right):
            self.drafts_right_by_position[position] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStats:
    """Gauges, and the counters as they stood.

    deferred: waiting sequences that are not next because of an adapter or a fork. saved_blocks:
    evicted blocks whose contents are in the host tier. copy_choices: decisions to copy a block or to
    compute it again, with how often each was made.
    """

    running: int
    waiting: int
    deferred: int
    running_adapters: tuple[str, ...]
    waiting_adapters: tuple[str, ...]
    kv_usage: float
    prefill_tokens_pending: int
    prefix_queries_tokens: int
    prefix_hits_tokens: int
    preemptions: int
    prompt_tokens_computed: int
    prompt_tokens_cached: int
    prompt_tokens_from_host: int
    generation_tokens: int
    drafts: int
    draft_tokens: int
    drafts_right_by_position: tuple[int, ...]
    waits_for_blocks: int
    rejections: int
    busy_s: float
    evicted_blocks: int
    saved_blocks: int
    copy_choices: tuple[tuple[Choice, int], ...]

    @property
    def dropped_blocks(self) -> int:
        return self.evicted_blocks - self.saved_blocks

    @property
    def prompt_tokens_from_device(self) -> int:
        return self.prompt_tokens_cached - self.prompt_tokens_from_host
