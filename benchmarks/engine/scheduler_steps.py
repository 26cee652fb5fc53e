"""Checks the scheduler's invariants over random lives of an engine with a small block pool.

    python -m benchmarks.engine.scheduler_steps [--steps 1000000] [--seed 0]

Sequences arrive with forks, adapters and priorities; steps run, fail, draft, and may be scheduled one ahead.
After each move the scheduler's invariants are checked, and before each step the content of every block.
"""

import sys
import time

import hypothesis.strategies as st
from benchmarks.options import option_parser
from hypothesis import Phase, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.engine.simulated_runner import Memory, next_token, sampled

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.step import PENDING_TOKEN, ScheduledSequence, SequenceOutput, Step

configs = st.builds(
    SchedulerConfig,
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(1, 24),
    max_model_len=st.integers(2, 48),
    block_size=st.sampled_from([1, 2, 4]),
    num_blocks=st.integers(2, 12),
    prefix_caching=st.booleans(),
    max_num_queued_seqs=st.integers(1, 8),
    policy=st.sampled_from(["fcfs", "priority"]),
    num_host_blocks=st.integers(0, 6),
    window_tokens=st.none() | st.integers(1, 20),
    max_adapters=st.integers(1, 2),
    adapter_max_wait_s=st.sampled_from([0.0, 3.0]),
    speculation=st.none()
    | st.builds(
        SpeculationConfig,
        method=st.sampled_from(["ngram", "suffix"]),
        num_speculative_tokens=st.integers(1, 5),
        prompt_lookup_min=st.just(1),
    )
    | st.builds(
        SpeculationConfig,
        method=st.just("draft_model"),
        num_speculative_tokens=st.integers(1, 5),
        model=st.just("small"),
    ),
)


class EngineMachine(RuleBasedStateMachine):
    @initialize(config=configs)
    def start(self, config: SchedulerConfig) -> None:
        self.scheduler = Scheduler(config)
        self.accepted: dict[str, Sequence] = {}
        self.ended: set[str] = set()
        self.open: list[tuple[Step, dict[str, SequenceOutput]]] = []
        self.num_added = 0
        self.now = 0.0
        self.memory = Memory(config)

    @rule(
        num_prompt_tokens=st.integers(1, 50),
        max_tokens=st.integers(1, 30),
        pattern=st.integers(0, 3),
        stop=st.booleans(),
        priority=st.integers(-1, 1),
        adapter=st.sampled_from(["", "", "x", "y", "z"]),
        num_forks=st.integers(0, 2),
        tpot_s=st.sampled_from([None, 0.001, 0.2, 9.0]),
    )
    @precondition(lambda self: len(self.open) < 2)
    def add(
        self, num_prompt_tokens: int, max_tokens: int, pattern: int, stop: bool, priority: int,
        adapter: str, num_forks: int, tpot_s: float | None,
    ) -> None:  # fmt: skip
        prompt = [next_token(pattern, position) for position in range(num_prompt_tokens)]
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=not stop)
        parent = ""
        for _ in range(1 + num_forks):
            self.num_added += 1
            sequence = Sequence(
                str(self.num_added), prompt, sampling, frozenset({5}), self.now,
                priority=priority, adapter=adapter, fork_of=parent, tpot_s=tpot_s,
            )  # fmt: skip
            event = self.scheduler.add(sequence)
            if event is None:
                self.accepted[sequence.request_id] = sequence
                parent = parent or sequence.request_id
            else:
                assert event.finish_reason == "error"

    @rule(pick=st.randoms(use_true_random=False))
    @precondition(lambda self: self.accepted)
    def abort(self, pick: object) -> None:
        request_id = pick.choice(sorted(self.accepted))  # type: ignore[attr-defined]
        event = self.scheduler.abort(request_id, 0.0)
        assert event is not None
        self.end(request_id)

    @rule(end_at=st.none() | st.integers(0, 40), num_guessed=st.integers(0, 5))
    @precondition(lambda self: len(self.open) < 2)
    def schedule(self, end_at: int | None, num_guessed: int) -> None:
        self.now += 1
        running = {s.request_id for s in self.accepted.values() if s.status is Status.RUNNING}
        step = self.scheduler.schedule(self.now)
        if not self.open:
            assert (step is None) == (not self.accepted), "work is waiting and nothing is done"
        if step is not None:
            self.check_step(step)
            self.check_order(step, running)
            self.memory.compute(step, self.tokens(), num_guessed, end_at)
            results = {s.request_id: sampled(s, num_guessed, end_at) for s in step.sequences}
            self.open.append((step, results))

    @rule(fail=st.integers(0, 9), duration_s=st.sampled_from([0.0, 0.1, 9.0]))
    @precondition(lambda self: self.open)
    def complete(self, fail: int, duration_s: float = 0.1) -> None:
        self.now += duration_s
        step, results = self.open.pop(0)
        first = step.sequences[0]
        if fail == 0 and self.scheduler.is_alive(first):
            for event in self.scheduler.fail([first.request_id], "step_failed", 0.0):
                self.end(event.request_id)
        for event in self.scheduler.complete(step, results, self.now):
            if event.finish_reason is not None:
                self.end(event.request_id)

    @rule(num_steps=st.integers(2, 12), end_at=st.none() | st.integers(0, 40))
    @precondition(lambda self: self.accepted)
    def go_ahead(self, num_steps: int, end_at: int | None) -> None:
        """Schedule the next step before the current one completes, as an overlapping loop does."""
        for _ in range(num_steps):
            if len(self.open) < 2:
                self.schedule(end_at=end_at, num_guessed=1)
                self.scheduler.check()
            if self.open:
                self.complete(fail=1)
                self.scheduler.check()
            if len(self.open) < 2:
                self.schedule(end_at=end_at, num_guessed=1)
                self.scheduler.check()

    def tokens(self) -> dict[str, list[int]]:
        """Tokens of all sequences, with those that open steps sample."""
        tokens = {request_id: list(s.tokens) for request_id, s in self.accepted.items()}
        for step, results in self.open:
            for s in filter(self.scheduler.is_alive, step.sequences):
                if s.is_sampled:
                    tokens[s.request_id] += results[s.request_id].token_ids
        return tokens

    def end(self, request_id: str) -> None:
        assert request_id not in self.ended, "a sequence ended twice"
        self.ended.add(request_id)
        sequence = self.accepted.pop(request_id)
        assert sequence.status is Status.FINISHED
        assert sequence.block_table == []

    def check_step(self, step: Step) -> None:
        config = self.scheduler.config
        num_open = sum(s.num_runner_drafts for s in step.sequences)
        assert 0 < step.num_tokens + num_open <= config.max_num_batched_tokens
        written: set[tuple[int, int]] = set()
        opened = {s.request_id: s for step, _ in self.open for s in step.sequences}
        tokens = self.tokens()
        for s in step.sequences:
            sequence = self.accepted[s.request_id]
            before = opened.get(s.request_id)
            if before is None:
                assert s.start == sequence.num_computed_tokens
            else:
                assert s.start == before.end
                assert before.max_num_drafts == s.max_num_drafts == 0, (
                    "a guess of what may be wrong"
                )
                assert sequence.num_prompt_tokens + sequence.sampling.max_tokens > s.end
            end_known = s.end - s.num_drafts
            known = sequence.tokens[s.start : end_known]
            assert list(s.token_ids) == [*(known or PENDING_TOKEN), *s.drafts]
            assert s.is_sampled == (end_known == len(tokens[s.request_id]))
            end_drafted = s.end + s.num_runner_drafts
            assert end_drafted < config.max_num_tokens
            assert len(s.block_table) * config.block_size >= end_drafted
            for position in range(s.start, end_drafted):
                block, offset = divmod(position, config.block_size)
                slot = (s.block_table[block], offset)
                assert slot not in written, "two tokens are written to one slot"
                written.add(slot)

    def check_order(self, step: Step, running: set[str]) -> None:
        """Check the order: decodes first, then prefills by priority; preempted sequences come last.

        running: ids that ran before the step was scheduled.
        """
        was_running = [self.accepted[request_id] for request_id in running]
        kept = [s for s in was_running if s.status is Status.RUNNING]
        preempted = [s.order for s in was_running if s.status is Status.WAITING]
        assert not preempted or max((s.order for s in kept), default=()) < min(preempted), (
            "a sequence was preempted for one of lower priority"
        )
        opened = {s.request_id: s for step, _ in self.open for s in step.sequences}
        chunks = {s.request_id: s for s in step.sequences}
        for sequence in kept:
            before = opened.get(sequence.request_id)
            if before is not None and before.is_sampled:
                continue  # the sequence may already have its last token
            start = sequence.num_computed_tokens if before is None else before.end
            chunk = chunks.get(sequence.request_id)
            if chunk is not None and chunk.is_sampled:
                continue
            later = [c for c in step.sequences if self.is_prefill(c) and c is not chunk]
            if sequence.num_tokens - start > 1:
                later = [c for c in later if self.accepted[c.request_id].order > sequence.order]
            assert not later, "a prefill had tokens of the budget that somebody before it lacked"

    def is_prefill(self, s: ScheduledSequence) -> bool:
        return len(s.token_ids) - s.num_drafts > 1

    num_checks = 0

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "scheduler"):
            EngineMachine.num_checks += 1
            self.scheduler.check()

    def teardown(self) -> None:
        """Check against starvation: without arrivals, all sequences end within a bounded number of steps."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(5_000):
            if len(self.open) < 2:
                self.schedule(end_at=None, num_guessed=2)
            if not self.open:
                break
            self.complete(fail=1)
        assert not self.accepted
        stats = self.scheduler.stats()
        assert (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0)
        assert stats.prefill_tokens_pending == 0
        assert stats.prefix_hits_tokens <= stats.prefix_queries_tokens


def campaign(num_steps: int, first_seed: int) -> int:
    """Run random lives. Returns the number of checked moves. Raises at the first violation."""
    EngineMachine.num_checks = 0
    run = first_seed
    while EngineMachine.num_checks < num_steps:
        lives = settings(
            max_examples=500, stateful_step_count=60, deadline=None, database=None,
            phases=[Phase.generate, Phase.shrink],
        )  # fmt: skip
        run_state_machine_as_test(seed(run)(EngineMachine), settings=lives)
        run += 1
    return EngineMachine.num_checks


def main() -> None:
    args = option_parser(__doc__, steps=1_000_000, seed=0).parse_args()
    started_s = time.monotonic()
    done = campaign(args.steps, args.seed)
    print(
        f"seed {args.seed}: {done} moves, all checks passed, {time.monotonic() - started_s:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
