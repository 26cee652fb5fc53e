"""A step launched before the one before it is waited for draws the tokens it would have drawn after."""

import queue
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.loop.engine_loop import EngineLoop, StepReport
from penstock_engine.loop.step_pipeline import StepHandle

SIZES = {"block_size": 8, "max_num_seqs": 6, "max_num_batched_tokens": 40, "max_model_len": 128}
EOS = 63


class CountingRunner:
    """The real runner at a depth of the test's choice; notes how many steps are under way.

    fail: asked when a step is waited for; it fails where that says so.
    """

    def __init__(self, model_dir: Path) -> None:
        config = RunnerConfig(
            model_dir=model_dir, device="cpu", dtype="float32", num_blocks=96, **SIZES
        )
        self.runner = Runner.load(config)
        self.reset(1)

    def reset(self, depth: int) -> None:
        self.depth = depth
        self.fail: Callable[[Step], bool] = lambda step: False
        self.num_open = 0
        self.num_ahead = 0

    def launch(self, step: Step) -> StepHandle:
        self.num_ahead += self.num_open > 0
        self.num_open += 1
        return CountedHandle(self, step, self.runner.launch(step))


class CountedHandle:
    def __init__(self, counting_runner: CountingRunner, step: Step, launched: StepHandle) -> None:
        self.watched = counting_runner
        self.step = step
        self.launched = launched

    def wait(self) -> dict[str, SequenceOutput]:
        self.watched.num_open -= 1
        if self.watched.fail(self.step):
            raise RuntimeError("out of luck")
        return self.launched.wait()


class Threes:
    """A grammar: every third token is 7, and the text is complete after the third of these."""

    has_failed = False

    def __init__(self) -> None:
        self.num_accepted = 0

    @property
    def is_finished(self) -> bool:
        return self.num_accepted == 9

    def fill(self, bits: memoryview) -> None:
        assert not self.is_finished, "there is nothing to ask any more"
        is_third = self.num_accepted % 3 == 2
        bits[:] = (b"\x80" if is_third else b"\x7f") + bytes([0 if is_third else 255] * 7)

    def accept(self, token_id: int) -> bool:
        self.num_accepted += 1
        return (token_id == 7) == (self.num_accepted % 3 == 0)

    def rollback(self, num_tokens: int) -> None:
        self.num_accepted -= num_tokens


class Near(float):
    """Equal but for rounding: the batches of a step ahead are not the same."""

    __hash__ = float.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 1e-4


def prompt(number: int) -> list[int]:
    return [(number * 7 + i * i) % 63 for i in range(1 + 9 * (number % 8))]


def sequence(number: int, **sampling: Any) -> Sequence:
    params = {"max_tokens": 5 + 3 * number, "temperature": 0.0, "seed": number} | sampling
    return Sequence(
        str(number), prompt(number), SamplingParams(**params), frozenset({EOS}), 0.0
    )  # fmt: skip


def constrained(number: int) -> Sequence:
    made = sequence(number, temperature=0.7)
    made.constraint = Threes()
    return made


MIXES: dict[str, Callable[[int], Sequence]] = {
    "greedy": lambda n: sequence(n, ignore_eos=True),
    "drawn": lambda n: sequence(n, temperature=0.8, top_k=20),
    "ends at its own": lambda n: sequence(n, temperature=1.5, stop_token_ids=frozenset(range(30))),
    "penalties": lambda n: sequence(n, frequency_penalty=0.6 * (n % 2), repetition_penalty=1.2),
    "bad words": lambda n: sequence(n, bad_words=((n, n + 1), (3,), (5, 6, 7)), temperature=0.6),
    "told": lambda n: sequence(n, logprobs=n % 3, prompt_logprobs=2 if n % 2 else None),
    "grammar": lambda n: constrained(n) if n % 2 else sequence(n, temperature=0.5),
}


def answers(
    counting_runner: CountingRunner, depth: int, sequences: Iterable[Sequence], **config: Any
) -> tuple[dict[str, list[TokenEvent]], SchedulerStats]:
    """All events of each sequence, when all have ended."""
    counting_runner.reset(depth)
    return run(counting_runner, sequences, **config)


def run(
    counting_runner: CountingRunner, sequences: Iterable[Sequence], **config: Any
) -> tuple[dict[str, list[TokenEvent]], SchedulerStats]:
    scheduler = Scheduler(SchedulerConfig(**{"num_blocks": 96} | SIZES | config))
    reports: queue.Queue[StepReport] = queue.Queue()
    loop = EngineLoop(scheduler, counting_runner, on_step=reports.put)
    events: dict[str, list[TokenEvent]] = {}
    for one in sequences:
        events[one.request_id] = []
        loop.submit(one)
    loop.start()
    while not all(own and own[-1].finish_reason for own in events.values()):
        report = reports.get(timeout=60)
        for event in report.events:
            events[event.request_id].append(event)
    loop.stop()
    scheduler.check()
    assert report.stats.kv_usage == 0.0
    return events, report.stats


def visible_to_client(events: dict[str, list[TokenEvent]]) -> dict[str, list[object]]:
    """Events as a client sees them."""
    return {
        request_id: [
            [token for e in own for token in e.token_ids],
            [
                (one.token_id, one.rank, Near(one.logprob), [token for token, _ in one.top])
                for e in own
                for one in (*e.prompt_logprobs, *e.logprobs)
            ],
            own[-1].finish_reason,
            own[-1].failure,
        ]
        for request_id, own in events.items()
    }


@pytest.fixture(scope="module")
def counting_runner(qwen3_dir: Path) -> CountingRunner:
    return CountingRunner(qwen3_dir)


@pytest.mark.parametrize(
    "limits",
    [{}, {"num_blocks": 18}, {"max_num_batched_tokens": 9}],
    ids=["roomy", "few blocks", "small budget"],
)
@pytest.mark.parametrize("mix", MIXES)
def test_the_same_is_told_in_step_and_ahead(
    counting_runner: CountingRunner, mix: str, limits: dict[str, int]
) -> None:
    expected, _ = answers(counting_runner, 1, map(MIXES[mix], range(10)), **limits)
    assert counting_runner.num_ahead == 0
    ahead, stats = answers(counting_runner, 2, map(MIXES[mix], range(10)), **limits)
    assert visible_to_client(ahead) == visible_to_client(expected)
    assert counting_runner.num_ahead > 3
    assert counting_runner.num_open == 0
    if "num_blocks" in limits and mix == "greedy":
        assert stats.preemptions > 0


def test_tokens_ahead_equal_those_of_transformers(
    counting_runner: CountingRunner, qwen3_dir: Path
) -> None:
    ahead, _ = answers(counting_runner, 2, (sequence(n, ignore_eos=True) for n in range(8)))
    model = transformers.Qwen3ForCausalLM.from_pretrained(qwen3_dir)
    for number in range(8):
        num_tokens = 5 + 3 * number
        ids = torch.tensor([prompt(number)])
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, eos_token_id=None,
            max_new_tokens=num_tokens, min_new_tokens=num_tokens, pad_token_id=0,
        )  # fmt: skip
        expected = output[0, ids.shape[1] :].tolist()
        assert [t for e in ahead[str(number)] for t in e.token_ids] == expected


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_guesses_keep_steps_behind_each_other(counting_runner: CountingRunner, method: Any) -> None:
    speculation = SpeculationConfig(method=method, num_speculative_tokens=3, prompt_lookup_min=1)
    expected, _ = answers(counting_runner, 1, map(MIXES["greedy"], range(10)))
    guessed, stats = answers(
        counting_runner, 2, map(MIXES["greedy"], range(10)), speculation=speculation
    )
    assert visible_to_client(guessed) == visible_to_client(expected)
    assert stats.draft_tokens > 0


@pytest.mark.parametrize("mix", ["greedy", "penalties", "grammar"])
def test_a_step_that_fails_when_waited_for_harms_only_the_culprit(
    counting_runner: CountingRunner, mix: str
) -> None:
    """The step behind it took what it drew, and is run again too."""
    expected, _ = answers(counting_runner, 1, map(MIXES[mix], range(6)))
    counting_runner.reset(2)
    num_waits = 0

    def fail(step: Step) -> bool:
        nonlocal num_waits
        num_waits += 1
        is_culprit = any(s.request_id == "3" and s.start > 30 for s in step.sequences)
        return is_culprit or (num_waits % 5 == 0 and len(step.sequences) > 1)

    counting_runner.fail = fail
    ahead, _ = run(counting_runner, map(MIXES[mix], range(6)))
    assert ahead["3"][-1].failure == "step_failed"
    del ahead["3"], expected["3"]
    assert visible_to_client(ahead) == visible_to_client(expected)
    assert counting_runner.num_ahead > 3
