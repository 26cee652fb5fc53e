"""The loop around a real tiny model: what arrives, what leaves, and what a failure harms."""

import queue
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock_engine.core.constraint import Constraint
from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.core.step import BlockCopies, Step
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.loop.engine_loop import EngineLoop, StepReport
from penstock_engine.loop.step_pipeline import MAX_CONSECUTIVE_FAILURES, StepHandle

CONFIG = SchedulerConfig(
    max_num_seqs=4, max_num_batched_tokens=8, max_model_len=512, block_size=4, num_blocks=128
)
Hook = Callable[[Step], None]


class HookedRunner:
    """The real runner; `hook` sees each step first, and may raise."""

    def __init__(self, model_dir: Path) -> None:
        config = RunnerConfig(
            model_dir=model_dir, device="cpu", dtype="float32", num_blocks=CONFIG.num_blocks,
            block_size=CONFIG.block_size, max_num_seqs=CONFIG.max_num_seqs,
            max_num_batched_tokens=CONFIG.max_num_batched_tokens,
            max_model_len=CONFIG.max_model_len,
        )  # fmt: skip
        self.runner = Runner.load(config)
        self.depth = 1
        self.hook: Hook = lambda step: None

    def launch(self, step: Step) -> StepHandle:
        self.hook(step)
        return self.runner.launch(step)


class Engine:
    """A running loop, and its reports in the order in which they came."""

    def __init__(self, runner: HookedRunner) -> None:
        self.runner = runner
        self.scheduler = Scheduler(CONFIG)
        self.reports: queue.Queue[StepReport] = queue.Queue()
        self.loop = EngineLoop(self.scheduler, runner, on_step=self.reports.put)

    def submit(
        self,
        name: str,
        num_prompt_tokens: int = 5,
        max_tokens: int = 6,
        constraint: Constraint | None = None,
    ) -> None:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        prompt = [t % 64 for t in (ord(name[0]) % 60, *range(num_prompt_tokens - 1))]
        self.loop.submit(Sequence(name, prompt, sampling, frozenset(), 0.0, constraint=constraint))

    def until(self, is_last: Callable[[TokenEvent], bool]) -> list[TokenEvent]:
        events: list[TokenEvent] = []
        while True:
            for event in self.reports.get(timeout=30).events:
                events.append(event)
                if is_last(event):
                    return events

    def until_finished(self, *names: str) -> dict[str, TokenEvent]:
        last: dict[str, TokenEvent] = {}
        while last.keys() < set(names):
            for event in self.reports.get(timeout=30).events:
                if event.finish_reason is not None:
                    last[event.request_id] = event
        return last


@pytest.fixture(scope="module")
def runner(qwen3_dir: Path) -> HookedRunner:
    return HookedRunner(qwen3_dir)


@pytest.fixture(params=[1, 2], ids=["in step", "ahead"])
def engine(runner: HookedRunner, request: pytest.FixtureRequest) -> Iterator[Engine]:
    runner.hook = lambda step: None
    runner.depth = request.param
    engine = Engine(runner)
    engine.loop.start()
    yield engine
    engine.loop.stop()
    assert not engine.loop.alive
    engine.scheduler.check()
    assert engine.scheduler.stats().kv_usage == 0.0


def fail_for(name: str) -> Hook:
    def hook(step: Step) -> None:
        if any(s.request_id == name for s in step.sequences):
            raise RuntimeError("out of luck")

    return hook


def test_requests_become_tokens(engine: Engine) -> None:
    engine.submit("a")
    engine.submit("b", num_prompt_tokens=30)
    finished = engine.until_finished("a", "b")
    assert {e.finish_reason for e in finished.values()} == {"length"}
    assert {e.num_output_tokens for e in finished.values()} == {6}


def test_reports_say_what_was_done(engine: Engine) -> None:
    engine.submit("a", num_prompt_tokens=10, max_tokens=1)
    first, second = engine.reports.get(timeout=30), engine.reports.get(timeout=30)
    assert (first.num_scheduled_tokens, first.events) == (8, [])
    assert first.stats.prefill_tokens_pending == 2
    assert second.num_scheduled_tokens == 2
    assert second.stats == replace(engine.loop.stats())
    assert second.duration_s > 0


def test_an_abort_in_mid_prefill_frees_the_blocks(engine: Engine) -> None:
    engine.submit("a", num_prompt_tokens=400)
    assert engine.reports.get(timeout=30).stats.prefill_tokens_pending > 0
    engine.loop.abort("a")
    [event] = engine.until(lambda e: e.finish_reason is not None)
    assert (event.finish_reason, event.num_output_tokens) == ("abort", 0)
    assert idle(engine.loop.stats())


def test_an_abort_in_mid_decode_frees_the_blocks(engine: Engine) -> None:
    engine.submit("a", max_tokens=400)
    engine.until(lambda e: e.num_output_tokens == 3)
    engine.loop.abort("a")
    events = engine.until(lambda e: e.finish_reason is not None)
    assert events[-1].finish_reason == "abort"
    assert idle(engine.loop.stats())


def idle(stats: SchedulerStats) -> bool:
    return (stats.running, stats.waiting, stats.kv_usage) == (0, 0, 0.0)


def test_unknown_aborts_are_ignored(engine: Engine) -> None:
    engine.loop.abort("nobody")
    engine.submit("a")
    assert engine.until_finished("a")["a"].finish_reason == "length"


def test_a_refusal_is_an_event(engine: Engine) -> None:
    engine.submit("a", num_prompt_tokens=512)
    assert engine.until_finished("a")["a"].failure == "prompt_too_long"


def test_one_bad_request_harms_no_other(engine: Engine) -> None:
    """The step is run again one by one: only the culprit fails, the others lose nothing."""
    engine.submit("a")
    expected = engine.until_finished("a")["a"]
    engine.runner.hook = fail_for("bad")
    for name in ("good", "bad", "another"):
        engine.submit(name)
    finished = engine.until_finished("good", "bad", "another")
    assert (finished["bad"].finish_reason, finished["bad"].failure) == ("error", "step_failed")
    assert finished["good"].finish_reason == finished["another"].finish_reason == "length"
    assert finished["good"].num_output_tokens == expected.num_output_tokens
    assert engine.loop.alive


class FailingGrammar:
    """A constraint that raises when it is asked which tokens may come."""

    is_finished = False

    def fill(self, bits: memoryview) -> None:
        raise RuntimeError("out of luck")

    def accept(self, token_id: int) -> bool:
        return True

    def rollback(self, num_tokens: int) -> None:
        pass


def test_a_draw_that_fails_harms_no_other(engine: Engine) -> None:
    """The real runner raises while it draws, behind a forward pass that went well."""
    names = ["ok1", "ok2", "bad", "ok3"]
    for name in names:
        constraint = FailingGrammar() if name == "bad" else None
        engine.submit(name, constraint=constraint)
    finished = engine.until_finished(*names)
    failures = {name: finished[name].failure for name in names}
    assert failures == {"ok1": None, "ok2": None, "bad": "step_failed", "ok3": None}
    assert {finished[name].num_output_tokens for name in names if name != "bad"} == {6}


def test_failures_now_and_then_do_not_add_up(engine: Engine) -> None:
    for index in range(2 * MAX_CONSECUTIVE_FAILURES):
        engine.runner.hook = fail_for("bad")
        engine.submit("bad")
        engine.until_finished("bad")
        engine.submit(f"good {index}")
        engine.until_finished(f"good {index}")
    assert engine.loop.alive


def test_repeated_failure_ends_the_loop_and_everything_in_it(engine: Engine) -> None:
    def hook(step: Step) -> None:
        raise RuntimeError("the device is gone")

    engine.runner.hook = hook
    names = [f"{index}" for index in range(MAX_CONSECUTIVE_FAILURES + CONFIG.max_num_seqs * 3)]
    for name in names:
        engine.submit(name, num_prompt_tokens=8)
    finished = engine.until_finished(*names)
    assert {e.failure for e in finished.values()} <= {"step_failed", "engine_stopped"}
    engine.loop._thread.join(timeout=30)
    assert not engine.loop.alive


def test_blocks_that_are_not_copied_end_the_loop(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sequence with such a block would read missing data, also when its step is run again."""

    def out_of_memory(model: PagedModel, moves: BlockCopies) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(PagedModel, "copy_blocks", out_of_memory)
    engine.submit("a")
    assert engine.until_finished("a")["a"].failure == "engine_stopped"
    engine.loop.stop()
    assert not engine.loop.alive


def test_stop_fails_what_still_runs(runner: HookedRunner) -> None:
    runner.hook = lambda step: None
    engine = Engine(runner)
    engine.loop.start()
    engine.submit("a", max_tokens=400)
    engine.until(lambda e: bool(e.token_ids))
    engine.loop.stop()
    assert engine.until_finished("a")["a"].failure == "engine_stopped"
    assert not engine.loop.alive


def test_an_engine_that_never_had_work_stops(runner: HookedRunner) -> None:
    engine = Engine(runner)
    assert not engine.loop.alive
    engine.loop.start()
    assert engine.loop.alive
    engine.loop.stop()
    assert not engine.loop.alive


def test_calls_after_the_runner_died_are_refused_and_do_not_keep_it_alive(
    runner: HookedRunner,
) -> None:
    """A caller's thread takes no message out of the inbox: it could be the one that ends the loop."""
    runner.hook = lambda step: None
    engine = Engine(runner)
    engine.loop.report_runner_death()
    early = [engine.loop.call_runner(lambda runner: 1) for _ in range(3)]
    given_up = engine.loop.call_runner(lambda runner: 1)
    assert given_up.cancel()
    engine.submit("a")
    engine.loop.start()
    assert engine.until_finished("a")["a"].failure == "engine_stopped"
    engine.loop._thread.join(timeout=30)
    late = engine.loop.call_runner(lambda runner: 1)
    for call in (*early, late):
        with pytest.raises(RuntimeError, match="has ended"):
            call.result(timeout=30)
