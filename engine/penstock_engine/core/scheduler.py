"""Who computes what next: one token budget, no phases.

Every sequence catches num_computed_tokens up with num_tokens. A decode is a sequence one token
behind, a prefill one that is many behind, a chunk what the budget leaves of it, a preempted
sequence one that starts over. Running sequences come first, in order of arrival; then waiting
ones, without overtaking.

No sequence starves. The oldest running one can take the blocks of all others, and alone it always
fits: a prompt larger than the pool is refused, and a sequence that outgrows it ends by length.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock_engine.core.blocks import BlockPool, extend_hashes
from penstock_engine.core.events import Failure, FinishReason, SchedulerStats, TokenEvent
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.step import Sampled, ScheduledSequence, Step

__all__ = ["Scheduler", "SchedulerConfig", "SchedulerStats", "TokenEvent"]

NOTHING = Sampled()


@dataclass(frozen=True, slots=True)
class _End:
    """token_id: the token that ended the sequence, when one did."""

    reason: FinishReason
    token_id: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    num_blocks: int
    prefix_caching: bool = True
    max_num_queued_seqs: int = 1024

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_num_queued_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.max_num_tokens < 2:
            raise ValueError("a sequence needs room for a prompt token and a generated one")

    @property
    def max_num_tokens(self) -> int:
        """Prompt and output of one sequence together: the model's limit, or the pool's."""
        return min(self.max_model_len, self.num_blocks * self.block_size)


class Scheduler:
    """Single owner, no locks, at most one step in flight."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self._pool = BlockPool(config.num_blocks, config.block_size, config.prefix_caching)
        self._sequences: dict[str, Sequence] = {}
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()
        self._running: list[Sequence] = []
        self._prefill_tokens_pending = 0
        self._prefix_queries_tokens = 0
        self._prefix_hits_tokens = 0
        self._preemptions = 0
        self._prompt_tokens_computed = 0
        self._prompt_tokens_cached = 0
        self._generation_tokens = 0

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    def add(self, sequence: Sequence) -> TokenEvent | None:
        """Queues a sequence, or refuses it with an event of reason "error"."""
        if sequence.request_id in self._sequences:
            raise ValueError(f"request id {sequence.request_id!r} is in use")
        refusal: Failure | None = None
        if sequence.num_prompt_tokens >= self.config.max_num_tokens:
            refusal = "prompt_too_long"
        elif len(self._waiting) >= self.config.max_num_queued_seqs:
            refusal = "queue_full"
        if refusal is not None:
            sequence.status = Status.FINISHED
            return TokenEvent.of(
                sequence, sequence.arrival_s, finish_reason="error", failure=refusal
            )
        self._sequences[sequence.request_id] = sequence
        self._waiting[sequence.request_id] = sequence
        self._prefill_tokens_pending += sequence.num_prompt_tokens_pending
        return None

    def abort(self, request_id: str, now: float) -> TokenEvent | None:
        """Ends a sequence and frees its blocks; None when it is unknown or has ended already."""
        sequence = self._sequences.get(request_id)
        return None if sequence is None else self._finish(sequence, "abort", now)

    def schedule(self, now: float) -> Step | None:
        """The next step, its blocks reserved; None when there is nothing to compute."""
        budget = self.config.max_num_batched_tokens
        num_preemptions = self._preemptions
        scheduled: list[ScheduledSequence] = []
        index = 0
        while index < len(self._running) and budget > 0:
            sequence = self._running[index]
            if self._make_room(sequence):
                scheduled.append(self._chunk(sequence, budget))
                budget -= scheduled[-1].num_tokens
            index += 1
        # A step that preempted is short of blocks: whoever it admitted would be the next victim.
        if self._preemptions == num_preemptions:
            while budget > 0 and (admitted := self._admit_next(now)) is not None:
                scheduled.append(self._chunk(admitted, budget))
                budget -= scheduled[-1].num_tokens
        return Step(tuple(scheduled)) if scheduled else None

    def complete(self, step: Step, sampled: Mapping[str, Sampled], now: float) -> list[TokenEvent]:
        """Takes in what a step computed; sequences that ended meanwhile are passed over.

        sampled: by request id, for each sequence that was to draw a token.
        """
        events: list[TokenEvent] = []
        for scheduled in step.sequences:
            sequence = self._sequences.get(scheduled.request_id)
            if sequence is None or sequence.status is not Status.RUNNING:
                continue
            result = sampled.get(scheduled.request_id, NOTHING)
            known = len(sequence.prompt_logprobs) - scheduled.start
            sequence.prompt_logprobs += result.prompt_logprobs[max(0, known) :]
            if not scheduled.is_sampled:
                self._advance(sequence, scheduled.end)
            elif result.token_ids:
                events.append(self._append(sequence, scheduled, result, now))
            else:
                events.append(self._finish(sequence, "error", now, "nothing_to_draw"))
        return events

    def fail(self, request_ids: Iterable[str], failure: Failure, now: float) -> list[TokenEvent]:
        """Ends sequences with reason "error" and frees their blocks."""
        sequences = [self._sequences[i] for i in list(request_ids) if i in self._sequences]
        return [self._finish(sequence, "error", now, failure) for sequence in sequences]

    def fail_all(self, failure: Failure, now: float) -> list[TokenEvent]:
        return self.fail(self._sequences, failure, now)

    def stats(self) -> SchedulerStats:
        return SchedulerStats(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_usage=self._pool.usage,
            prefill_tokens_pending=self._prefill_tokens_pending,
            prefix_queries_tokens=self._prefix_queries_tokens,
            prefix_hits_tokens=self._prefix_hits_tokens,
            preemptions=self._preemptions,
            prompt_tokens_computed=self._prompt_tokens_computed,
            prompt_tokens_cached=self._prompt_tokens_cached,
            generation_tokens=self._generation_tokens,
        )

    def check(self) -> None:
        """Raises AssertionError when the books do not balance. Between steps only."""
        sequences = self._sequences.values()
        self._pool.check(sequence.block_table for sequence in sequences)
        running = {sequence.request_id for sequence in self._running}
        assert len(running) == len(self._running) <= self.config.max_num_seqs
        assert running.isdisjoint(self._waiting), "a sequence both waits and runs"
        assert running | self._waiting.keys() == self._sequences.keys(), "a sequence got lost"
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

    def _chunk(self, sequence: Sequence, budget: int) -> ScheduledSequence:
        start = sequence.num_computed_tokens
        end = min(sequence.num_tokens, start + budget)
        return ScheduledSequence(
            request_id=sequence.request_id,
            start=start,
            token_ids=tuple(sequence.tokens[start:end]),
            block_table=tuple(sequence.block_table),
            is_sampled=end == sequence.num_tokens,
            sampling=sequence.sampling,
            history=sequence.tokens,
            num_prompt_tokens=sequence.num_prompt_tokens,
            ending_token_ids=sequence.ending_token_ids,
            constraint=sequence.constraint,
            wants_prompt_logprobs=sequence.wants_prompt_logprobs,
        )

    def _make_room(self, sequence: Sequence) -> bool:
        """Blocks for all tokens of a running sequence; False when it had to give way itself."""
        num_missing = self._num_blocks_for(sequence) - len(sequence.block_table)
        if num_missing <= 0:
            return True
        while (blocks := self._pool.reserve(num_missing)) is None:
            victim = self._running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.block_table += blocks
        return True

    def _admit_next(self, now: float) -> Sequence | None:
        """The head of the queue, now running and with all its blocks; None when it must wait."""
        if not self._waiting or len(self._running) >= self.config.max_num_seqs:
            return None
        sequence = next(iter(self._waiting.values()))
        shared = self._cached_prefix(sequence)
        blocks = self._pool.reserve(self._num_blocks_for(sequence) - len(shared), shared)
        if blocks is None:
            return None
        del self._waiting[sequence.request_id]
        self._running.append(sequence)
        sequence.status = Status.RUNNING
        sequence.block_table = blocks
        num_cached_tokens = len(shared) * self.config.block_size
        self._set_num_computed(sequence, num_cached_tokens)
        if sequence.first_scheduled_s is None:
            sequence.first_scheduled_s = now
            sequence.num_cached_tokens = num_cached_tokens
            if self.config.prefix_caching:
                self._prefix_queries_tokens += sequence.num_prompt_tokens
                self._prefix_hits_tokens += num_cached_tokens
        return sequence

    def _cached_prefix(self, sequence: Sequence) -> list[int]:
        if not self.config.prefix_caching or sequence.wants_prompt_logprobs:
            return []  # what is read from the cache has no logits
        size = self.config.block_size
        extend_hashes(sequence.block_hashes, sequence.tokens, size, sequence.cache_salt)
        # At least one token is computed, for its logits.
        return self._pool.match(sequence.block_hashes[: (sequence.num_tokens - 1) // size])

    def _preempt(self, sequence: Sequence) -> None:
        self._release(sequence)
        self._set_num_computed(sequence, 0)
        sequence.status = Status.WAITING
        sequence.num_preemptions += 1
        self._preemptions += 1
        self._waiting[sequence.request_id] = sequence
        self._waiting.move_to_end(sequence.request_id, last=False)

    def _advance(self, sequence: Sequence, num_computed_tokens: int) -> None:
        """Counts tokens as computed and offers the blocks they fill to others."""
        size = self.config.block_size
        first_block, end_block = sequence.num_computed_tokens // size, num_computed_tokens // size
        self._set_num_computed(sequence, num_computed_tokens)
        if self.config.prefix_caching and end_block > first_block:
            extend_hashes(sequence.block_hashes, sequence.tokens, size, sequence.cache_salt)
            for index in range(first_block, end_block):
                self._pool.publish(sequence.block_table[index], sequence.block_hashes[index])

    def _append(
        self, sequence: Sequence, scheduled: ScheduledSequence, sampled: Sampled, now: float
    ) -> TokenEvent:
        """Takes in right drafts and the token after them, as far as the sequence goes on."""
        is_first = sequence.first_token_s is None
        if is_first:
            sequence.first_token_s = now
            self._prompt_tokens_cached += sequence.num_cached_tokens
            self._prompt_tokens_computed += sequence.num_prompt_tokens - sequence.num_cached_tokens
        num_taken = 0
        end: _End | None = None
        for token_id in sampled.token_ids:
            sequence.tokens.append(token_id)
            num_taken += 1
            if (end := self._end_of(sequence, token_id)) is not None:
                break
        self._generation_tokens += num_taken
        # Keys and values exist up to the last right draft, and never of the last token.
        num_right = scheduled.end - scheduled.num_drafts + len(sampled.token_ids) - 1
        self._advance(sequence, min(num_right, sequence.num_tokens - 1))
        event = TokenEvent.of(
            sequence,
            now,
            token_ids=sampled.token_ids[:num_taken],
            logprobs=sampled.logprobs[:num_taken],
            prompt_logprobs=tuple(sequence.prompt_logprobs) if is_first else (),
        )
        if end is None:
            return event
        self._leave(sequence)
        return replace(
            event,
            finish_reason=end.reason,
            failure=end.failure,
            ending_token_id=end.token_id,
        )

    def _end_of(self, sequence: Sequence, token_id: int) -> "_End | None":
        """Whether the token just appended is the last, and why."""
        constraint = sequence.constraint
        if constraint is not None and not constraint.accept(token_id):
            return _End("error", failure="nothing_to_draw")
        if (
            token_id in sequence.ending_token_ids
            and sequence.num_output_tokens > sequence.sampling.min_tokens
        ):
            return _End("stop", token_id)
        if constraint is not None and constraint.is_finished:
            return _End("stop")
        is_at_limit = sequence.num_tokens >= self.config.max_num_tokens
        if is_at_limit or sequence.num_output_tokens >= sequence.sampling.max_tokens:
            return _End("length")
        return None

    def _finish(
        self, sequence: Sequence, reason: FinishReason, now: float, failure: Failure | None = None
    ) -> TokenEvent:
        self._leave(sequence)
        return TokenEvent.of(sequence, now, finish_reason=reason, failure=failure)

    def _leave(self, sequence: Sequence) -> None:
        if sequence.status is Status.RUNNING:
            self._running.remove(sequence)
        else:
            del self._waiting[sequence.request_id]
        del self._sequences[sequence.request_id]
        self._prefill_tokens_pending -= sequence.num_prompt_tokens_pending
        self._release(sequence)
        sequence.status = Status.FINISHED

    def _release(self, sequence: Sequence) -> None:
        self._pool.release(sequence.block_table)
        sequence.block_table = []

    def _set_num_computed(self, sequence: Sequence, num_computed_tokens: int) -> None:
        self._prefill_tokens_pending -= sequence.num_prompt_tokens_pending
        sequence.num_computed_tokens = num_computed_tokens
        self._prefill_tokens_pending += sequence.num_prompt_tokens_pending

    def _num_blocks_for(self, sequence: Sequence) -> int:
        return -(-sequence.num_tokens // self.config.block_size)
