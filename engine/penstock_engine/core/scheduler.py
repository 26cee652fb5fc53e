"""Continuous-batching scheduler with one token budget per step and no separate phases.

Every sequence catches num_computed_tokens up with num_tokens. A decode is a sequence one token
behind, a prefill one that is many behind, a chunk the part of it that fits the budget, a preempted
sequence one that starts over, and a draft a token that may be rejected.

The budget goes to running sequences that decode, one token each, then to running prefills in their
order, then to waiting sequences without overtaking. So a prefill delays no stream by more than the
duration of a step, whatever its priority. Priority decides which prefill comes first, who is
admitted first and who is preempted last. Drafts share what prompts leave of the budget.

No sequence starves while none of higher priority comes. The first running one can take the blocks
of all others, and alone it always fits: a prompt larger than the pool is refused, and a sequence
that outgrows it ends by length.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import count

from penstock_engine.core.blocks import BlockPool
from penstock_engine.core.cache import KVCache
from penstock_engine.core.drafts import Drafts
from penstock_engine.core.ending import take
from penstock_engine.core.events import Failure, FinishReason, TokenEvent
from penstock_engine.core.line import Line
from penstock_engine.core.open_steps import OpenSteps
from penstock_engine.core.queue import Queue
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.speculation import Speculation
from penstock_engine.core.stats import Counters, SchedulerStats
from penstock_engine.core.step import TO_BE_DRAWN, Sampled, ScheduledSequence, Step
from penstock_engine.core.step_pace import StepPace

NOTHING = Sampled()

# A sequence, the position it begins at, and how many tokens it has. A plain tuple, as there is one
# for each sequence in each step.
Chunk = tuple[Sequence, int, int]


class Scheduler:
    """Single owner, no locks.

    A step may be scheduled while the one before it is computed, and each is completed after the
    next is scheduled: `schedule`, `schedule`, `complete` of the first, `schedule`, and so on. Steps
    have to be computed in their order. What a step computed of a sequence that ended meanwhile is
    passed over; its blocks go to later steps only.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        speculation: Speculation | None = None,
        pace: StepPace | None = None,
    ) -> None:
        """speculation: instead of the configured one. pace: that somebody else learns; None: this
        one learns it of its steps."""
        self.config = config
        self._learns_pace = pace is None
        self._pace = pace or StepPace()
        self._max_num_tokens = config.max_num_tokens
        self._has_window = config.window_tokens is not None
        self._cache = KVCache(
            BlockPool(config.num_blocks, config.block_size, config.prefix_caching),
            config.num_host_blocks,
            config.window_tokens,
        )
        if speculation is None and config.speculation is not None:
            speculation = Speculation(config.speculation)
        self._drafts = Drafts(speculation, self._cache, config.max_num_tokens)
        self._sequences: dict[str, Sequence] = {}
        self._open = OpenSteps(self._sequences)
        self._waiting = Queue(config.max_adapters, config.adapter_patience_s)
        self._running = Line()
        self._serials = count()
        self._prefill_tokens_pending = 0
        self._counters = Counters()

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    @property
    def token_budget(self) -> int:
        """Of the next step: less than the configured one where prompts would keep those that decode
        waiting for longer than they are willing to."""
        return self._pace.budget(self.config.max_num_batched_tokens, len(self._running))

    @property
    def num_free_blocks(self) -> int:
        return self._cache.pool.num_free_blocks

    def add(self, sequence: Sequence) -> TokenEvent | None:
        """Queues a sequence, or refuses it with an event of reason "error"."""
        if sequence.request_id in self._sequences:
            raise ValueError(f"request id {sequence.request_id!r} is in use")
        if sequence.adapter and not self.config.max_adapters:
            raise ValueError("a scheduler without room for adapters was given one")
        refusal: Failure | None = None
        if sequence.num_prompt_tokens >= self._max_num_tokens:
            refusal = "prompt_too_long"
        elif len(self._sequences) >= self.config.max_num_open_seqs:
            refusal = "queue_full"
        if refusal is not None:
            sequence.status = Status.FINISHED
            is_for_blocks = sequence.num_prompt_tokens < self.config.max_model_len
            self._counters.rejections += refusal == "prompt_too_long" and is_for_blocks
            return TokenEvent.of(
                sequence, sequence.arrival_s, finish_reason="error", failure=refusal
            )
        priority = sequence.priority if self.config.policy == "priority" else 0
        sequence.order = (priority, next(self._serials))
        sequence.drafter = self._drafts.drafter(sequence.cache_salt)
        self._sequences[sequence.request_id] = sequence
        self._waiting.line.add(sequence)
        self._prefill_tokens_pending += sequence.num_prompt_tokens_pending
        return None

    def abort(self, request_id: str, now: float) -> TokenEvent | None:
        """Ends a sequence and frees its blocks; None when it is unknown or has ended already."""
        sequence = self._sequences.get(request_id)
        return None if sequence is None else self._finish(sequence, "abort", now)

    def schedule(self, now: float) -> Step | None:
        """The next step, its blocks reserved; None when there is nothing to compute.

        While a step is open, also None when the next one has to wait for what it draws, or for
        blocks that it may set free.
        """
        ahead_of = self._open.newest()
        if ahead_of and self._drafts.keep_in_step:
            return None
        num_preemptions = self._counters.preemptions
        running = self._running_chunks(ahead_of)
        if running is None:
            return None
        chunks, budget = running
        max_drafts = self._drafts.grant(chunks, is_ahead=bool(ahead_of))
        # A step that preempted is short of blocks: whoever it admitted would be the next victim.
        if self._counters.preemptions == num_preemptions:
            while budget > 0 and (admitted := self._admit_next(now)) is not None:
                num_tokens = min(budget, admitted.num_tokens_behind)
                budget -= num_tokens
                chunks.append((admitted, admitted.num_computed_tokens, num_tokens))
        # After admission: drafts of many streams could take the whole budget, step after step.
        scheduled: list[ScheduledSequence] = []
        for chunk in chunks:
            scheduled.append(self._scheduled(chunk, min(budget, max_drafts)))
            budget -= scheduled[-1].num_all_drafts
        if not scheduled:
            return None
        step = Step(tuple(scheduled), self._cache.take_moves())
        self._open.open(step, now)
        return step

    def complete(self, step: Step, sampled: Mapping[str, Sampled], now: float) -> list[TokenEvent]:
        """Takes in what the oldest open step computed.

        sampled: by request id, for each sequence that was to draw a token.
        """
        duration_s = self._open.close(step, now)
        self._counters.busy_s += duration_s
        self._drafts.timed(step, duration_s)
        if self._learns_pace:
            self._pace.timed(step.num_prompt_tokens, duration_s)
        if self.config.num_host_blocks:
            self._cache.timed(step, duration_s)
        events: list[TokenEvent] = []
        for scheduled in step.sequences:
            sequence = self._sequences.get(scheduled.request_id)
            if sequence is None or sequence.tokens is not scheduled.history:
                continue
            result = sampled.get(scheduled.request_id, NOTHING)
            if result.is_corrupt:
                self._cache.discard(sequence)
                events.append(self._finish(sequence, "error", now, "not_numbers"))
                continue
            if result.prompt_logprobs:
                known = len(sequence.prompt_logprobs) - scheduled.start
                sequence.prompt_logprobs += result.prompt_logprobs[max(0, known) :]
            if not scheduled.is_sampled:
                self._advance(sequence, scheduled.end)
            elif result.token_ids:
                events.append(self._append(sequence, scheduled, result, now))
            else:
                events.append(self._finish(sequence, "error", now, "nothing_to_draw"))
        return events

    def is_alive(self, scheduled: ScheduledSequence) -> bool:
        """Whether the sequence of this part of an open step has not ended."""
        return self._open.is_alive(scheduled)

    def fail(self, request_ids: Iterable[str], failure: Failure, now: float) -> list[TokenEvent]:
        """Ends sequences with reason "error" and frees their blocks."""
        sequences = [self._sequences[i] for i in list(request_ids) if i in self._sequences]
        return [self._finish(sequence, "error", now, failure) for sequence in sequences]

    def fail_all(self, failure: Failure, now: float) -> list[TokenEvent]:
        return self.fail(self._sequences, failure, now)

    def reset_prefix_cache(self) -> None:
        """What comes from now on is computed, though it was before."""
        self._cache.forget()

    def stats(self) -> SchedulerStats:
        counted = asdict(self._counters)
        counted["drafts_right_by_position"] = tuple(self._counters.drafts_right_by_position)
        running_adapters = self._running_adapters()
        return SchedulerStats(
            running=len(self._running),
            waiting=len(self._waiting),
            deferred=self._waiting.num_deferred(self._sequences, running_adapters),
            running_adapters=tuple(sorted(running_adapters)),
            waiting_adapters=tuple(sorted({s.adapter for s in self._waiting.line if s.adapter})),
            kv_usage=self._cache.pool.usage,
            prefill_tokens_pending=self._prefill_tokens_pending,
            evicted_blocks=self._cache.num_evicted_blocks,
            saved_blocks=self._cache.num_saved_blocks,
            copy_choices=tuple(self._cache.copy_choices.items()),
            **counted,
        )

    def check(self) -> None:
        """Raises AssertionError when the books do not balance."""
        sequences = self._sequences.values()
        self._cache.check(list(sequences))
        self._open.check()
        self._pace.check(sequences)
        assert len(self._running_adapters()) <= self.config.max_adapters
        running = {sequence.request_id for sequence in self._running}
        waiting = {sequence.request_id for sequence in self._waiting.line}
        assert len(running) == len(self._running) <= self.config.max_num_seqs
        assert running.isdisjoint(waiting), "a sequence both waits and runs"
        assert running | waiting == self._sequences.keys(), "a sequence got lost"
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

    def _running_chunks(
        self, ahead_of: Mapping[str, ScheduledSequence]
    ) -> tuple[list[Chunk], int] | None:
        """Chunks of the running sequences within the budget, and what is left of it.

        Decoding sequences come first, each with its one token; prefills share the rest in their
        order. Every chunk has blocks for all tokens of its sequence. Only decoding sequences need
        new blocks, as a prefill was admitted with all of its own, so no sequence that already has
        a chunk is preempted.

        ahead_of: the sequences of the open step. Returns None if blocks are missing that the open
        step may free; without an open step the last sequences are preempted instead.
        """
        budget = self.token_budget
        block_size = self.config.block_size
        chunks: list[Chunk] = []
        prefills: list[Chunk] = []
        index = 0
        while index < len(self._running) and budget > 0:
            sequence = self._running[index]
            index += 1
            start, length = sequence.num_computed_tokens, len(sequence.tokens)
            if ahead_of and (opened := ahead_of.get(sequence.request_id)) is not None:
                if opened.is_sampled and self._ends_with_next(sequence):
                    continue
                start = opened.end
                length += opened.is_sampled
            has_blocks = length <= len(sequence.block_table) * block_size
            if not has_blocks and not self._cache.grow(sequence, length):
                if ahead_of:
                    return None
                if not self._make_room(sequence):
                    continue
            if length - start > 1:
                prefills.append((sequence, start, length - start))
            else:
                chunks.append((sequence, start, 1))
                budget -= 1
        for sequence, start, num_behind in prefills:
            if budget <= 0:
                break
            num_tokens = num_behind if num_behind < budget else budget
            chunks.append((sequence, start, num_tokens))
            budget -= num_tokens
        return chunks, budget

    def _ends_with_next(self, sequence: Sequence) -> bool:
        """Whether the next token is its last one, whichever it is."""
        num_tokens = len(sequence.tokens) + 1
        most = sequence.num_prompt_tokens + sequence.sampling.max_tokens
        return num_tokens >= min(most, self._max_num_tokens)

    def _scheduled(self, chunk: Chunk, max_drafts: int) -> ScheduledSequence:
        sequence, start, num_tokens = chunk
        known: tuple[int, ...] = ()
        num_open = 0
        if max_drafts:
            drafts = self._drafts.of(sequence, num_tokens, max_drafts)
            known, num_open = ((), drafts) if isinstance(drafts, int) else (drafts, 0)
        tokens = sequence.tokens
        end = start + num_tokens
        return ScheduledSequence(
            sequence.request_id,
            start,
            (*tokens[start:end], *known) if start < len(tokens) else TO_BE_DRAWN,
            tuple(sequence.block_table),
            end >= len(tokens),
            sequence.sampling,
            tokens,
            sequence.num_prompt_tokens,
            sequence.ending_token_ids,
            sequence.constraint,
            sequence.adapter,
            len(known),
            num_open,
            sequence.wants_prompt_logprobs,
        )

    def _make_room(self, sequence: Sequence) -> bool:
        """Blocks for all tokens of a running sequence; False when it had to give way itself."""
        while not self._cache.grow(sequence, sequence.num_tokens):
            victim = self._running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _admit_next(self, now: float) -> Sequence | None:
        """The first that need not wait for others, now running and with all its blocks.

        None when there is no such sequence, or it does not fit: nobody overtakes it then.
        """
        if len(self._running) >= self.config.max_num_seqs:
            return None
        sequence = self._waiting.next(self._sequences, self._running_adapters(), now)
        if sequence is None:
            return None
        parent = self._sequences.get(sequence.fork_of)
        if parent is None or sequence.num_output_tokens or sequence.wants_prompt_logprobs:
            admission = self._cache.admit(sequence)
        else:
            admission = self._cache.fork(sequence, parent)
        if admission is None:
            self._counters.waits_for_blocks += sequence.num_waits == 0
            sequence.num_waits += 1
            return None
        self._waiting.line.remove(sequence)
        self._running.add(sequence)
        sequence.status = Status.RUNNING
        self._set_num_computed(sequence, admission.num_tokens)
        if sequence.first_scheduled_s is None:
            sequence.first_scheduled_s = now
            sequence.num_cached_tokens = admission.num_tokens
            sequence.num_host_tokens = admission.num_host_tokens
            if self.config.prefix_caching:
                self._counters.prefix_queries_tokens += sequence.num_prompt_tokens
                self._counters.prefix_hits_tokens += admission.num_tokens
        return sequence

    def _running_adapters(self) -> set[str]:
        return {sequence.adapter for sequence in self._running if sequence.adapter}

    def _preempt(self, sequence: Sequence) -> None:
        """The sequence is out of the running line already."""
        self._cache.release(sequence)
        self._set_num_computed(sequence, 0)
        sequence.status = Status.WAITING
        sequence.num_preemptions += 1
        self._counters.preemptions += 1
        self._waiting.line.add(sequence)

    def _advance(self, sequence: Sequence, num_computed_tokens: int) -> None:
        """Counts tokens as computed and offers the blocks they fill to others."""
        if self.config.prefix_caching:
            self._cache.publish(sequence, num_computed_tokens)
        self._set_num_computed(sequence, num_computed_tokens)
        if self._has_window:
            self._cache.release_unseen(sequence)

    def _append(
        self, sequence: Sequence, scheduled: ScheduledSequence, sampled: Sampled, now: float
    ) -> TokenEvent:
        """Takes in right drafts and the token after them, as far as the sequence goes on."""
        is_first = sequence.first_token_s is None
        if is_first:
            sequence.first_token_s = now
            self._pace.began(sequence)
            num_cached_tokens = sequence.num_cached_tokens
            self._counters.prompt_tokens_cached += num_cached_tokens
            self._counters.prompt_tokens_from_host += sequence.num_host_tokens
            self._counters.prompt_tokens_computed += sequence.num_prompt_tokens - num_cached_tokens
        token_ids = sampled.token_ids
        num_taken, end = take(sequence, token_ids, self._max_num_tokens)
        self._counters.generation_tokens += num_taken
        if sampled.num_drafts:
            num_right = len(token_ids) - 1
            self._counters.draft_judged(sampled.num_drafts, num_right)
            self._drafts.judged(sampled.num_drafts, num_right)
        # Keys and values exist up to the last right draft, and never of the last token.
        num_kept = len(scheduled.token_ids) - scheduled.num_drafts
        end_right = scheduled.start + num_kept + len(token_ids) - 1
        self._advance(sequence, min(end_right, len(sequence.tokens) - 1))
        event = TokenEvent.of(
            sequence,
            now,
            token_ids[:num_taken],
            sampled.logprobs[:num_taken],
            tuple(sequence.prompt_logprobs) if is_first else (),
            sampled.embedding,
        )
        if end is None:
            return event
        self._leave(sequence)
        return event._replace(
            finish_reason=end.reason, failure=end.failure, ending_token_id=end.token_id
        )

    def _finish(
        self, sequence: Sequence, reason: FinishReason, now: float, failure: Failure | None = None
    ) -> TokenEvent:
        self._leave(sequence)
        return TokenEvent.of(sequence, now, finish_reason=reason, failure=failure)

    def _leave(self, sequence: Sequence) -> None:
        line = self._running if sequence.status is Status.RUNNING else self._waiting.line
        line.remove(sequence)
        del self._sequences[sequence.request_id]
        self._prefill_tokens_pending -= sequence.num_prompt_tokens_pending
        self._cache.release(sequence)
        self._pace.ended(sequence)
        sequence.status = Status.FINISHED

    def _set_num_computed(self, sequence: Sequence, num_computed_tokens: int) -> None:
        lowest = min(sequence.num_computed_tokens, num_computed_tokens)
        if lowest < sequence.num_prompt_tokens:
            self._prefill_tokens_pending -= sequence.num_prompt_tokens_pending
            sequence.num_computed_tokens = num_computed_tokens
            self._prefill_tokens_pending += sequence.num_prompt_tokens_pending
        else:
            sequence.num_computed_tokens = num_computed_tokens
