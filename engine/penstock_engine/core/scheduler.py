"""Continuous-batching scheduler with one token budget per step and no separate phases.

Every sequence catches num_computed_tokens up with num_tokens. A decode is a sequence that is one
token behind, a prefill one that is many behind, a chunk the part of it that fits the budget, a
preempted sequence one that starts over, and a draft a token that may be rejected.

The budget goes first to running sequences that decode, one token each, then to running prefills by
priority, then to waiting sequences in queue order. So a prefill delays a decode by at most one step,
whatever its priority. Priority decides which prefill comes first, which sequence is admitted first
and which is preempted last. Drafts get what prompts leave of the budget.

No sequence starves unless ones of higher priority keep arriving. The first running sequence can take
the blocks of all others, and alone it always fits: a prompt larger than the pool is refused, and a
sequence that outgrows it ends with reason "length".
"""

from collections.abc import Iterable, Mapping

from penstock_engine.core.chunks import Chunk, running_chunks, to_scheduled
from penstock_engine.core.events import Failure, FinishReason, TokenEvent
from penstock_engine.core.in_flight_steps import InFlightSteps
from penstock_engine.core.kv_cache.block_events import BlockEvent
from penstock_engine.core.prefill_budget import PrefillBudget
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.scheduler_state import SchedulerState
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.speculation.planner import DraftPlanner, Speculation
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.core.step import ScheduledSequence, SequenceOutput, Step
from penstock_engine.core.stop_check import append_until_stop

EMPTY_OUTPUT = SequenceOutput()


class Scheduler:
    """Composes steps, and turns their results into events. Not thread-safe.

    A step may be scheduled while the one before it is computed: `schedule`, `schedule`, `complete`
    of the first, `schedule`, and so on. Steps have to be computed in the order of scheduling. The
    results of a sequence that ended meanwhile are ignored; its blocks are only used by later steps.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        speculation: Speculation | None = None,
        prefill_budget: PrefillBudget | None = None,
    ) -> None:
        """speculation: replaces the configured one. prefill_budget: one that the caller updates with
        step durations; None: the scheduler has its own and updates it."""
        self.config = config
        self._updates_budget = prefill_budget is None
        self._prefill_budget = prefill_budget or PrefillBudget()
        self._max_num_tokens = config.max_num_tokens
        self._state = SchedulerState(config, self._prefill_budget)
        self._cache = self._state.cache
        self._counters = self._state.counters
        if speculation is None and config.speculation is not None:
            speculation = Speculation(config.speculation)
        self._drafts = DraftPlanner(speculation, self._cache, config.max_num_tokens)
        self._in_flight = InFlightSteps(self._state.sequences)

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._state.sequences)

    @property
    def token_budget(self) -> int:
        """Maximum number of tokens of the next step: the configured one, or fewer if prompts would
        delay decoding sequences beyond their tpot_s."""
        return self._prefill_budget.token_budget(
            self.config.max_num_batched_tokens, len(self._state.running)
        )

    @property
    def num_free_blocks(self) -> int:
        return self._cache.pool.num_free_blocks

    def add(self, sequence: Sequence) -> TokenEvent | None:
        """Queue a sequence. Returns None, or an event with reason "error" if it is refused."""
        if sequence.request_id in self._state.sequences:
            raise ValueError(f"request id {sequence.request_id!r} is in use")
        if sequence.adapter and not self.config.max_adapters:
            raise ValueError("a sequence has an adapter, but max_adapters is 0")
        refusal: Failure | None = None
        if sequence.num_prompt_tokens >= self._max_num_tokens:
            refusal = "prompt_too_long"
        elif len(self._state.sequences) >= self.config.max_num_open_seqs:
            refusal = "queue_full"
        if refusal is not None:
            sequence.status = Status.FINISHED
            is_for_blocks = sequence.num_prompt_tokens < self.config.max_model_len
            self._counters.rejections += refusal == "prompt_too_long" and is_for_blocks
            return TokenEvent.of(
                sequence, sequence.arrival_s, finish_reason="error", failure=refusal
            )
        sequence.drafter = self._drafts.make_drafter(sequence.cache_salt)
        self._state.enqueue(sequence)
        return None

    def abort(self, request_id: str, now: float) -> TokenEvent | None:
        """End a sequence and free its blocks. Returns None if it is unknown or has ended already."""
        sequence = self._state.sequences.get(request_id)
        return None if sequence is None else self._finish(sequence, "abort", now)

    def schedule(self, now: float) -> Step | None:
        """Compose the next step and allocate its blocks; None if there is nothing to compute.

        While a step is in flight, also None if the next one needs the tokens that it samples, or
        blocks that it may free.
        """
        in_flight = self._in_flight.sequences_in_flight()
        if in_flight and self._drafts.needs_completed_step:
            return None
        num_preemptions = self._counters.preemptions
        running = self._running_chunks(in_flight, now)
        if running is None:
            return None
        chunks, budget = running
        max_drafts = self._drafts.plan_step(chunks, is_ahead=bool(in_flight))
        # A step that preempted is short of blocks: a sequence that it admits would be preempted next.
        if self._counters.preemptions == num_preemptions:
            while budget > 0 and (admitted := self._state.admit_next(now)) is not None:
                num_tokens = min(budget, admitted.num_tokens_behind)
                budget -= num_tokens
                chunks.append((admitted, admitted.num_computed_tokens, num_tokens))
        # After admission: drafts of many streams could take the whole budget, step after step.
        scheduled: list[ScheduledSequence] = []
        for chunk in chunks:
            most = min(budget, max_drafts)
            drafts = self._drafts.propose(chunk[0], chunk[2], most) if most else ()
            scheduled.append(to_scheduled(chunk, drafts))
            budget -= scheduled[-1].max_num_drafts
        if not scheduled:
            return None
        step = Step(tuple(scheduled), self._cache.take_block_copies())
        self._in_flight.add(step, now)
        return step

    def complete(
        self, step: Step, outputs: Mapping[str, SequenceOutput], now: float
    ) -> list[TokenEvent]:
        """Apply the results of the oldest step in flight. Returns an event for each sequence of it
        that has new tokens or ends.

        outputs: by request id, for each sequence that samples a token.
        """
        duration_s = self._in_flight.complete(step, now)
        self._counters.busy_s += duration_s
        self._drafts.observe_step(step, duration_s)
        if self._updates_budget:
            self._prefill_budget.observe_step(step.num_prompt_tokens, duration_s)
        if self.config.num_host_blocks:
            self._cache.observe_step(step, duration_s)
        events: list[TokenEvent] = []
        for scheduled in step.sequences:
            sequence = self._state.sequences.get(scheduled.request_id)
            if sequence is None or sequence.tokens is not scheduled.history:
                continue
            output = outputs.get(scheduled.request_id, EMPTY_OUTPUT)
            if output.is_corrupt:
                self._cache.discard(sequence)
                events.append(self._finish(sequence, "error", now, "nan_output"))
                continue
            if output.prompt_logprobs:
                known = len(sequence.prompt_logprobs) - scheduled.start
                sequence.prompt_logprobs += output.prompt_logprobs[max(0, known) :]
            if not scheduled.is_sampled:
                self._state.advance(sequence, scheduled.end)
            elif output.token_ids:
                events.append(self._append(sequence, scheduled, output, now))
            else:
                events.append(self._finish(sequence, "error", now, "nothing_to_draw"))
        return events

    def is_alive(self, scheduled: ScheduledSequence) -> bool:
        """Whether the sequence of this part of a step in flight has not ended."""
        return self._in_flight.is_alive(scheduled)

    def fail(self, request_ids: Iterable[str], failure: Failure, now: float) -> list[TokenEvent]:
        """End sequences with reason "error" and free their blocks."""
        open_sequences = self._state.sequences
        sequences = [open_sequences[i] for i in list(request_ids) if i in open_sequences]
        return [self._finish(sequence, "error", now, failure) for sequence in sequences]

    def fail_all(self, failure: Failure, now: float) -> list[TokenEvent]:
        """End all sequences with reason "error"."""
        return self.fail(self._state.sequences, failure, now)

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache: sequences admitted from now on compute their whole prompts."""
        self._cache.reset_prefix_cache()

    def take_block_events(self) -> list[BlockEvent]:
        """Changes of the prefix cache since the last call; empty unless config.block_events."""
        log = self._state.block_events
        return [] if log is None else log.take()

    def stats(self) -> SchedulerStats:
        """Current values of all gauges and counters."""
        return self._state.stats()

    def check(self) -> None:
        """Raise AssertionError if an invariant of the scheduler does not hold."""
        self._state.check()
        self._in_flight.check()

    def _running_chunks(
        self, in_flight: Mapping[str, ScheduledSequence], now: float
    ) -> tuple[list[Chunk], int] | None:
        """Chunks of the running sequences and the rest of the budget, as chunks.running_chunks says."""
        return running_chunks(self._state, self.token_budget, in_flight, now)

    def _append(
        self, sequence: Sequence, scheduled: ScheduledSequence, output: SequenceOutput, now: float
    ) -> TokenEvent:
        """Append accepted drafts and the sampled token, as far as the sequence goes on."""
        is_first = sequence.first_token_s is None
        if is_first:
            self._count_first_token(sequence, now)
        token_ids = output.token_ids
        num_taken, stop = append_until_stop(sequence, token_ids, self._max_num_tokens)
        self._counters.generation_tokens += num_taken
        if output.num_drafts:
            num_accepted = len(token_ids) - 1
            self._counters.count_drafts(output.num_drafts, num_accepted)
            self._drafts.observe_acceptance(output.num_drafts, num_accepted)
        # Keys and values exist up to the last accepted draft, and never for the last token.
        num_kept = len(scheduled.token_ids) - scheduled.num_drafts
        end_accepted = scheduled.start + num_kept + len(token_ids) - 1
        self._state.advance(sequence, min(end_accepted, len(sequence.tokens) - 1))
        event = TokenEvent.of(
            sequence,
            now,
            token_ids[:num_taken],
            output.logprobs[:num_taken],
            tuple(sequence.prompt_logprobs) if is_first else (),
            output.embedding,
        )
        if stop is None:
            return event
        self._state.remove(sequence)
        return event._replace(
            finish_reason=stop.reason, failure=stop.failure, ending_token_id=stop.token_id
        )

    def _count_first_token(self, sequence: Sequence, now: float) -> None:
        sequence.first_token_s = now
        self._prefill_budget.add_decoding(sequence)
        num_cached_tokens = sequence.num_cached_tokens
        self._counters.prompt_tokens_cached += num_cached_tokens
        self._counters.prompt_tokens_from_host += sequence.num_host_tokens
        self._counters.prompt_tokens_computed += sequence.num_prompt_tokens - num_cached_tokens

    def _finish(
        self, sequence: Sequence, reason: FinishReason, now: float, failure: Failure | None = None
    ) -> TokenEvent:
        self._state.remove(sequence)
        return TokenEvent.of(sequence, now, finish_reason=reason, failure=failure)
