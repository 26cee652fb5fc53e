"""The open sequences of a scheduler: waiting or running, with their KV blocks and counters."""

from dataclasses import asdict
from itertools import count

from penstock_engine.core.kv_cache.block_events import BlockEventLog
from penstock_engine.core.kv_cache.blocks import BlockPool
from penstock_engine.core.kv_cache.cache import KVCache
from penstock_engine.core.prefill_budget import PrefillBudget
from penstock_engine.core.priority_list import PriorityList
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.stats import Counters, SchedulerStats
from penstock_engine.core.waiting_queue import WaitingQueue


class SchedulerState:
    """Moves sequences between the waiting queue and the running list. Not thread-safe.

    sequences: all that have not ended, by request id. Each of them is either in `waiting`, without
    blocks, or in `running`, with blocks for all its tokens.
    """

    def __init__(self, config: SchedulerConfig, prefill_budget: PrefillBudget) -> None:
        self.config = config
        self.block_events = BlockEventLog() if config.block_events else None
        self.cache = KVCache(
            BlockPool(
                config.num_blocks, config.block_size, config.prefix_caching, self.block_events
            ),
            config.num_host_blocks,
            config.window_tokens,
            self.block_events,
        )
        self.counters = Counters()
        self.sequences: dict[str, Sequence] = {}
        self.waiting = WaitingQueue(config.max_adapters, config.adapter_max_wait_s)
        self.running = PriorityList()
        self._prefill_budget = prefill_budget
        self._has_window = config.window_tokens is not None
        self._arrival_numbers = count()
        self._prefill_tokens_pending = 0

    def enqueue(self, sequence: Sequence) -> None:
        """Add a new sequence to the waiting queue."""
        priority = sequence.priority if self.config.policy == "priority" else 0
        sequence.order = (priority, next(self._arrival_numbers))
        self.sequences[sequence.request_id] = sequence
        self.waiting.sequences.add(sequence)
        self._prefill_tokens_pending += sequence.num_prompt_tokens_pending

    def admit_next(self, now: float) -> Sequence | None:
        """Move the first sequence that is not deferred to the running list, with all its blocks.

        Returns None if there is no such sequence, or too few blocks are free for it. Later sequences
        do not pass one that does not fit, so that large prompts are not starved.
        """
        if not self.waiting or len(self.running) >= self.config.max_num_seqs:
            return None
        sequence = self.waiting.select_next(self.sequences, self.running_adapters(), now)
        if sequence is None:
            return None
        parent = self.sequences.get(sequence.fork_of)
        if parent is None or sequence.num_output_tokens or sequence.wants_prompt_logprobs:
            admission = self.cache.admit(sequence)
        else:
            admission = self.cache.fork(sequence, parent)
        if admission is None:
            self.counters.waits_for_blocks += sequence.num_waits == 0
            sequence.num_waits += 1
            return None
        self.waiting.sequences.remove(sequence)
        self.running.add(sequence)
        sequence.status = Status.RUNNING
        self._set_num_computed(sequence, admission.num_tokens)
        if sequence.num_preemptions:
            sequence.resumed_s.append(now)
        if sequence.first_scheduled_s is None:
            sequence.first_scheduled_s = now
            sequence.num_cached_tokens = admission.num_tokens
            sequence.num_host_tokens = admission.num_host_tokens
            if self.config.prefix_caching:
                self.counters.prefix_queries_tokens += sequence.num_prompt_tokens
                self.counters.prefix_hits_tokens += admission.num_tokens
        return sequence

    def grow_or_preempt(self, sequence: Sequence, now: float) -> bool:
        """Allocate blocks for all tokens of a running sequence, preempting the last running ones.

        Returns False if the sequence itself was the last one and is preempted.
        """
        while not self.cache.grow(sequence, sequence.num_tokens):
            if self.preempt_last(now) is sequence:
                return False
        return True

    def preempt_last(self, now: float) -> Sequence:
        """Free the blocks of the last running sequence, queue it again and return it."""
        sequence = self.running.pop()
        self.cache.release(sequence)
        self._set_num_computed(sequence, 0)
        sequence.status = Status.WAITING
        sequence.preempted_s.append(now)
        self.counters.preemptions += 1
        self.waiting.sequences.add(sequence)
        return sequence

    def advance(self, sequence: Sequence, num_computed_tokens: int) -> None:
        """Set the number of computed tokens, and add the blocks they fill to the prefix cache."""
        if self.config.prefix_caching:
            self.cache.publish(sequence, num_computed_tokens)
        self._set_num_computed(sequence, num_computed_tokens)
        if self._has_window:
            self.cache.release_skipped(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence that ends, and free its blocks."""
        is_running = sequence.status is Status.RUNNING
        (self.running if is_running else self.waiting.sequences).remove(sequence)
        del self.sequences[sequence.request_id]
        self._prefill_tokens_pending -= sequence.num_prompt_tokens_pending
        self.cache.release(sequence)
        self._prefill_budget.remove_decoding(sequence)
        sequence.status = Status.FINISHED

    def running_adapters(self) -> set[str]:
        """The adapters of running sequences."""
        if not self.config.max_adapters:
            return set()
        return {sequence.adapter for sequence in self.running if sequence.adapter}

    def stats(self) -> SchedulerStats:
        """Current values of all gauges and counters."""
        running_adapters = self.running_adapters()
        waiting = self.waiting.sequences
        return SchedulerStats(
            running=len(self.running),
            waiting=len(waiting),
            deferred=self.waiting.num_deferred(self.sequences, running_adapters),
            running_adapters=tuple(sorted(running_adapters)),
            waiting_adapters=tuple(sorted({s.adapter for s in waiting if s.adapter})),
            kv_usage=self.cache.pool.usage,
            prefill_tokens_pending=self._prefill_tokens_pending,
            evicted_blocks=self.cache.num_evicted_blocks,
            saved_blocks=self.cache.num_saved_blocks,
            copy_choices=tuple(self.cache.copy_choices.items()),
            **asdict(self.counters),
        )

    def check(self) -> None:
        """Raise AssertionError if an invariant of the state does not hold."""
        sequences = self.sequences.values()
        self.cache.check(list(sequences))
        self._prefill_budget.check(sequences)
        assert len(self.running_adapters()) <= self.config.max_adapters
        running = {sequence.request_id for sequence in self.running}
        waiting = {sequence.request_id for sequence in self.waiting.sequences}
        assert len(running) == len(self.running) <= self.config.max_num_seqs
        assert running.isdisjoint(waiting), "a sequence both waits and runs"
        assert running | waiting == self.sequences.keys(), "a sequence got lost"
        for sequence in sequences:
            is_running = sequence.request_id in running
            assert sequence.status is (Status.RUNNING if is_running else Status.WAITING)
            assert is_running or not sequence.block_table, "a waiting sequence holds blocks"
            assert 0 <= sequence.num_computed_tokens < sequence.num_tokens
            assert sequence.num_tokens < self.config.max_num_tokens
            capacity = len(sequence.block_table) * self.config.block_size
            assert sequence.num_computed_tokens <= capacity, "tokens computed without blocks"
        pending = sum(sequence.num_prompt_tokens_pending for sequence in sequences)
        assert pending == self._prefill_tokens_pending, "pending prompt tokens miscounted"

    def _set_num_computed(self, sequence: Sequence, num_computed_tokens: int) -> None:
        lowest = min(sequence.num_computed_tokens, num_computed_tokens)
        if lowest < sequence.num_prompt_tokens:
            self._prefill_tokens_pending -= sequence.num_prompt_tokens_pending
            sequence.num_computed_tokens = num_computed_tokens
            self._prefill_tokens_pending += sequence.num_prompt_tokens_pending
        else:
            sequence.num_computed_tokens = num_computed_tokens
