"""Counters of the scheduler, and snapshots of its state."""

from dataclasses import dataclass

from penstock_engine.core.kv_cache.offload_policy import Choice


@dataclass(slots=True)
class Counters:
    """Totals since the scheduler was created.

    Prefix queries and hits are counted once for each sequence, when it is first admitted. Prompt tokens are
    counted when their sequence samples its first token.
    """

    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    preemptions: int = 0
    prompt_tokens_computed: int = 0
    prompt_tokens_cached: int = 0
    prompt_tokens_from_host: int = 0
    generation_tokens: int = 0
    drafts: int = 0  # number of drafts, each of one or more tokens for one sequence in one step
    draft_tokens: int = 0
    accepted_by_position: tuple[int, ...] = ()  # number of accepted drafts by position
    # Sequences that reached the head of the queue and found too few free blocks
    waits_for_blocks: int = 0
    rejections: int = 0  # sequences whose prompt exceeds the whole pool, but not the model's limit
    busy_s: float = 0.0  # seconds during which a step was computed

    def count_drafts(self, num_drafts: int, num_accepted: int) -> None:
        """Count the result of one sequence's draft of num_drafts tokens."""
        self.drafts += 1
        self.draft_tokens += num_drafts
        missing = num_drafts - len(self.accepted_by_position)
        counts = (*self.accepted_by_position, *[0] * missing)
        self.accepted_by_position = tuple(
            count + (position < num_accepted) for position, count in enumerate(counts)
        )


@dataclass(slots=True, kw_only=True)
class SchedulerStats(Counters):
    """Snapshot of the scheduler's gauges and counters."""

    running: int
    waiting: int
    deferred: int  # waiting sequences that are passed over because of an adapter or a fork
    running_adapters: tuple[str, ...]
    waiting_adapters: tuple[str, ...]
    kv_usage: float  # fraction of the blocks that sequences hold
    prefill_tokens_pending: int
    evicted_blocks: int
    saved_blocks: int  # evicted blocks whose contents are in the host tier
    copy_choices: tuple[tuple[Choice, int], ...]  # offload decisions, with how often each was made

    @property
    def dropped_blocks(self) -> int:
        return self.evicted_blocks - self.saved_blocks

    @property
    def prompt_tokens_from_device(self) -> int:
        return self.prompt_tokens_cached - self.prompt_tokens_from_host
