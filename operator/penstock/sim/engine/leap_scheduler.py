"""The engine's scheduler with leaps: decoding sequences advance by many iterations at once.

    schedule_leap -> step with the prompts, blocks for all iterations of the leap -> complete_leap

After its first token, a sequence needs nothing from the scheduler but a block when its last one is full.
So it joins the group of decoding sequences. For each of them the scheduler stores the iteration in which it
needs its next block. Tokens are added to a sequence only when it leaves the group: it ends or is preempted.
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Sequence as Many
from functools import cache

from penstock.sim.engine.block_counter import BlockCounter
from penstock.sim.engine.leap import MAX_ITERATIONS
from penstock_engine.core.chunks import Chunk, add_prefills
from penstock_engine.core.kv_cache.blocks import BlockPool
from penstock_engine.core.prefill_budget import PrefillBudget
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import ScheduledSequence, SequenceOutput, Step


class EverySequence(dict[str, SequenceOutput]):
    """Sampler output that gives every sequence of a step `tokens` tokens.

    The scheduler stops at the last token of each sequence.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self._sampled = SequenceOutput((0,) * tokens)

    def get(self, request_id: str, default: object = None) -> SequenceOutput:
        return self._sampled


every_sequence = cache(EverySequence)


class Answers(dict[str, SequenceOutput]):
    """Sampler output like `EverySequence`, with the tokens of the answers that a later prompt holds."""

    def __init__(self, scheduler: "LeapScheduler", tokens: int) -> None:
        self._scheduler = scheduler
        self._tokens = tokens

    def get(self, request_id: str, default: object = None) -> SequenceOutput:
        if request_id not in self._scheduler.blocks:
            return every_sequence(self._tokens).get(request_id)
        return SequenceOutput(tuple(self._scheduler.next_tokens(request_id, self._tokens)))


class Member:
    """A sequence of the group. joined: iteration after which it joined. last: that of its last token."""

    __slots__ = ("has_left", "joined", "last", "sequence")

    def __init__(self, sequence: Sequence, joined: int) -> None:
        self.sequence = sequence
        self.has_left = False
        self.joined = joined
        self.last = joined + sequence.sampling.max_tokens - sequence.num_output_tokens


class LeapScheduler(Scheduler):
    """Scheduler of a simulated engine. Iterations are counted by the engine.

    preempted: request ids that the last leap preempted at its start. blocks: ids of all blocks of a sequence,
    by request id, where a later prompt holds its answer; other answers are token 0.
    """

    def __init__(self, config: SchedulerConfig, prefill_budget: PrefillBudget) -> None:
        super().__init__(config, None, prefill_budget)
        if not config.prefix_caching:
            self._cache.pool = BlockCounter(config.num_blocks, config.block_size)
        self.preempted: list[str] = []
        self.blocks: dict[str, Many[int]] = {}
        self._group: dict[str, Member] = {}
        self._prefills: dict[str, Sequence] = {}  # running sequences with an unfinished prompt
        self._growing: dict[int, list[Member]] = {}  # by the iteration that needs one more block
        self._done = 0  # iterations before the leap

    @property
    def pool(self) -> BlockPool:
        """Its KV blocks, and the index of cached prefixes."""
        return self._cache.pool

    @property
    def num_waiting(self) -> int:
        """Number of sequences that it has not admitted, or has preempted."""
        return len(self._state.waiting.sequences)

    def next_tokens(self, request_id: str, count: int) -> list[int]:
        """Next tokens of a sequence's answer; behind its end they are 0."""
        blocks = self.blocks.get(request_id)
        if blocks is None:
            return [0] * count
        first, size = self._state.sequences[request_id].num_tokens, self.config.block_size
        places = range(first, min(first + count, len(blocks) * size))
        tokens = [blocks[place // size] + 1 for place in places]
        return tokens + [0] * (count - len(tokens))

    def max_iterations(self, pending: Iterable[Sequence], num_decoding: int) -> int:
        """Number of iterations of the next leap, of which the first computes all pending prompts."""
        block_size = self.config.block_size
        budget, free_blocks = self.token_budget, self.num_free_blocks
        num_sequences = num_decoding
        for sequence in pending:
            num_tokens = sequence.num_tokens_behind
            budget -= num_tokens
            free_blocks -= num_tokens // block_size + 1
            num_sequences += 1
            if budget < num_sequences:
                return 1
        if not num_sequences or num_sequences > self.config.max_num_seqs:
            return 1
        iterations = min(budget // num_sequences, free_blocks // num_sequences * block_size)
        return max(1, min(MAX_ITERATIONS, iterations))

    def schedule_leap(self, now: float, done: int, iterations: int) -> Step | None:
        """Compose the first iteration, and allocate the blocks of all iterations of the leap.

        done: iterations before the leap. There must be blocks for all but the first. Returns the prompts of
        the first iteration, without the group; None if there are none.
        """
        self._done = done
        self.preempted = []
        step = self.schedule(now)
        for iteration in range(done + 2, done + iterations + 1):
            for member in self._growing.pop(iteration, ()):
                if not member.has_left:
                    member.sequence.block_table += self._cache.pool.reserve(1) or ()
                    self._expect_growth(member, iteration + self.config.block_size)
        for scheduled in () if step is None else step.sequences:
            if scheduled.is_sampled:
                sequence = self._state.sequences[scheduled.request_id]
                num_left = sequence.sampling.max_tokens - sequence.num_output_tokens
                self._cache.grow(sequence, sequence.num_tokens + min(iterations, num_left) - 1)
        return step

    def complete_leap(
        self, step: Step | None, done: int, ended: Collection[str], now: float
    ) -> None:
        """Remove the sequences that ended in the leap, and move those with a first token to the group.

        done: iterations until now.
        """
        members = [self._group[request_id] for request_id in ended if request_id in self._group]
        for member in sorted(members, key=_order):
            self._leave(member, done)
            self._state.remove(member.sequence)
        if step is not None:
            self._complete_step(step, done, now)
        for request_id in ended:
            self.blocks.pop(request_id, None)

    def _complete_step(self, step: Step, done: int, now: float) -> None:
        """Add the tokens of the prompts' sequences, and move those with a first token to the group."""
        tokens = done - self._done
        self.complete(step, Answers(self, tokens) if self.blocks else every_sequence(tokens), now)
        for scheduled in step.sequences:
            sequence = self._state.sequences.get(scheduled.request_id)
            if sequence is not None and not scheduled.is_sampled:
                self._prefills[scheduled.request_id] = sequence
                continue
            self._prefills.pop(scheduled.request_id, None)
            if sequence is not None:
                self._join(sequence, done)

    def _running_chunks(
        self, in_flight: Mapping[str, ScheduledSequence], now: float
    ) -> tuple[list[Chunk], int]:
        """Chunks of the prompts. The group takes its tokens from the budget, and may preempt sequences."""
        budget = self.token_budget
        first = self._done + 1
        for member in sorted(self._growing.pop(first, ()), key=_order):
            if not member.has_left and self._grow_or_preempt(member, first, now):
                self._expect_growth(member, first + self.config.block_size)
        budget -= len(self._group)
        chunks: list[Chunk] = []
        if self._prefills:
            prefills = sorted(self._prefills.values(), key=lambda sequence: sequence.order)
            behind = [(s, s.num_computed_tokens, s.num_tokens_behind) for s in prefills]
            budget = add_prefills(chunks, behind, budget)
        return chunks, budget

    def _grow_or_preempt(self, member: Member, iteration: int, now: float) -> bool:
        """Allocate the block of one iteration, preempting the last running sequences.

        Returns False if the sequence itself was the last one and is preempted.
        """
        sequence = member.sequence
        while not self._cache.grow(sequence, self._tokens_at(member, iteration)):
            last = self._state.running[-1].request_id
            if last in self._group:
                self._leave(self._group[last], self._done)
            self._prefills.pop(last, None)
            self.preempted.append(last)
            if self._state.preempt_last(now) is sequence:
                return False
        return True

    def _join(self, sequence: Sequence, done: int) -> None:
        member = self._group[sequence.request_id] = Member(sequence, done)
        capacity = len(sequence.block_table) * self.config.block_size
        self._expect_growth(member, done + 2 + capacity - sequence.num_tokens)

    def _leave(self, member: Member, done: int) -> None:
        sequence = member.sequence
        del self._group[sequence.request_id]
        member.has_left = True
        count = min(done, member.last) - member.joined
        sequence.tokens += self.next_tokens(sequence.request_id, count)
        self._state.advance(sequence, sequence.num_tokens - 1)

    def _expect_growth(self, member: Member, iteration: int) -> None:
        if iteration <= member.last:
            self._growing.setdefault(iteration, []).append(member)

    def _tokens_at(self, member: Member, iteration: int) -> int:
        """Tokens with keys and values after an iteration."""
        return member.sequence.num_tokens + iteration - member.joined - 1


def _order(member: Member) -> tuple[int, int]:
    return member.sequence.order
