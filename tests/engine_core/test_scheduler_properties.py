"""Whatever arrives, leaves or fails, and however tight the pool: the books balance, all finish."""

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler, SchedulerConfig
from penstock_engine.core.sequence import Sequence, Status
from penstock_engine.core.speculation import SpeculationConfig
from penstock_engine.core.step import Sampled, ScheduledSequence, Step

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


# Two possible tokens: prompts share prefixes, and outputs meet other prompts.
def next_token(seed: int, position: int) -> int:
    return (seed + position) % 2


def sampled(s: ScheduledSequence, num_guessed: int, end_at: int | None = None) -> Sampled:
    """What a runner whose model says next_token(0, ...) would give; 5 from end_at on.

    num_guessed: of the open drafts, how many the runner guesses; all of them right.
    """

    def token(position: int) -> int:
        return 5 if end_at is not None and position >= end_at else next_token(0, position)

    first = s.end - s.num_drafts
    drafts = s.drafts or tuple(token(first + i) for i in range(min(num_guessed, s.num_open_drafts)))
    tokens = [token(first)]
    while len(tokens) <= len(drafts) and drafts[len(tokens) - 1] == tokens[-1]:
        tokens.append(token(first + len(tokens)))
    return Sampled(tuple(tokens), len(drafts))


class EngineMachine(RuleBasedStateMachine):
    @initialize(config=configs)
    def start(self, config: SchedulerConfig) -> None:
        self.scheduler = Scheduler(config)
        self.accepted: dict[str, Sequence] = {}
        self.ended: set[str] = set()
        self.step: Step | None = None
        self.num_added = 0

    @rule(
        num_prompt_tokens=st.integers(1, 50),
        max_tokens=st.integers(1, 30),
        pattern=st.integers(0, 3),
        stop=st.booleans(),
        priority=st.integers(-1, 1),
    )
    @precondition(lambda self: self.step is None)
    def add(
        self, num_prompt_tokens: int, max_tokens: int, pattern: int, stop: bool, priority: int
    ) -> None:
        self.num_added += 1
        prompt = [next_token(pattern, position) for position in range(num_prompt_tokens)]
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=not stop)
        sequence = Sequence(
            str(self.num_added), prompt, sampling, frozenset({5}), 0.0, priority=priority
        )
        event = self.scheduler.add(sequence)
        if event is None:
            self.accepted[sequence.request_id] = sequence
        else:
            assert event.finish_reason == "error"

    @rule(pick=st.randoms(use_true_random=False))
    @precondition(lambda self: self.accepted)
    def abort(self, pick: object) -> None:
        request_id = pick.choice(sorted(self.accepted))  # type: ignore[attr-defined]
        event = self.scheduler.abort(request_id, 0.0)
        assert event is not None
        self.end(request_id)

    @rule()
    @precondition(lambda self: self.step is None)
    def schedule(self) -> None:
        self.step = self.scheduler.schedule(0.0)
        assert (self.step is None) == (not self.accepted), "work is waiting and nothing is done"
        if self.step is not None:
            self.check_step(self.step)

    @rule(fail=st.integers(0, 9), end_at=st.none() | st.integers(0, 40), guessed=st.integers(0, 5))
    @precondition(lambda self: self.step is not None)
    def complete(self, fail: int, end_at: int | None, guessed: int) -> None:
        assert self.step is not None
        if fail == 0:
            for event in self.scheduler.fail(
                [self.step.sequences[0].request_id], "step_failed", 0.0
            ):
                self.end(event.request_id)
        results = {s.request_id: sampled(s, guessed, end_at) for s in self.step.sequences}
        for event in self.scheduler.complete(self.step, results, 0.0):
            if event.finish_reason is not None:
                self.end(event.request_id)
        self.step = None

    def end(self, request_id: str) -> None:
        assert request_id not in self.ended, "a sequence ended twice"
        self.ended.add(request_id)
        sequence = self.accepted.pop(request_id)
        assert sequence.status is Status.FINISHED
        assert sequence.block_table == []

    def check_step(self, step: Step) -> None:
        config = self.scheduler.config
        num_open = sum(s.num_open_drafts for s in step.sequences)
        assert 0 < step.num_tokens + num_open <= config.max_num_batched_tokens
        written: set[tuple[int, int]] = set()
        for s in step.sequences:
            sequence = self.accepted[s.request_id]
            assert s.start == sequence.num_computed_tokens
            end_known = s.end - s.num_drafts
            assert list(s.token_ids) == [*sequence.tokens[s.start : end_known], *s.drafts]
            assert s.is_sampled == (end_known == sequence.num_tokens)
            end_drafted = s.end + s.num_open_drafts
            assert end_drafted < config.max_num_tokens
            assert len(s.block_table) * config.block_size >= end_drafted
            for position in range(s.start, end_drafted):
                block, offset = divmod(position, config.block_size)
                slot = (s.block_table[block], offset)
                assert slot not in written, "two tokens are written to one slot"
                written.add(slot)

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.check()

    def teardown(self) -> None:
        """No starvation: without new arrivals, everything ends within a bounded number of steps."""
        if not hasattr(self, "scheduler"):
            return
        if self.step is not None:
            self.complete(fail=1, end_at=None, guessed=2)
        for _ in range(5_000):
            self.schedule()
            if self.step is None:
                break
            self.complete(fail=1, end_at=None, guessed=2)
        assert not self.accepted
        stats = self.scheduler.stats()
        assert (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0)
        assert stats.prefill_tokens_pending == 0
        assert stats.prefix_hits_tokens <= stats.prefix_queries_tokens


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

workloads = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 12), st.integers(0, 3)), min_size=1, max_size=8
)


@given(configs, workloads)
@settings(deadline=None)
def test_the_same_input_gives_the_same_steps(
    config: SchedulerConfig, workload: list[tuple[int, int, int]]
) -> None:
    """Determinism: what a trace recorded, a replay repeats."""
    assert run(config, workload) == run(config, workload)


@given(configs, workloads)
@settings(deadline=None)
def test_output_depends_on_neither_schedule_nor_cache(
    config: SchedulerConfig, workload: list[tuple[int, int, int]]
) -> None:
    """Each accepted sequence yields min(max_tokens, room) tokens, preempted or not."""
    counts: dict[str, int] = {}
    for step in run(config, workload):
        for s in step.sequences:
            if s.is_sampled:
                num_tokens = len(sampled(s, 2).token_ids)
                counts[s.request_id] = counts.get(s.request_id, 0) + num_tokens
    expected = {
        str(index): min(max_tokens, config.max_num_tokens - num_prompt_tokens)
        for index, (num_prompt_tokens, max_tokens, _) in enumerate(workload)
        if str(index) in counts
    }
    assert counts == expected


def run(config: SchedulerConfig, workload: list[tuple[int, int, int]]) -> list[Step]:
    scheduler = Scheduler(config)
    for index, (num_prompt_tokens, max_tokens, pattern) in enumerate(workload):
        prompt = [next_token(pattern, position) for position in range(num_prompt_tokens)]
        sampling = SamplingParams(max_tokens=max_tokens)
        scheduler.add(Sequence(str(index), prompt, sampling, frozenset(), 0.0))
    steps: list[Step] = []
    while (step := scheduler.schedule(0.0)) is not None:
        steps.append(step)
        scheduler.complete(step, {s.request_id: sampled(s, 2) for s in step.sequences}, 0.0)
    return steps
