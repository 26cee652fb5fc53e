"""The engine's modes: how its runner is made, how its scheduler schedules, and what must have happened."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from benchmarks.gpu.greedy.subject import ADAPTERS, Subject, Variant

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence as EngineSequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.core.step import Step
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.pending_step import PendingStep
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.lora.adapter_files import AdapterFolder
from penstock_engine.lora.checkpoint import AdapterCheckpoint

BLOCK_SIZE = 16
# Matches one token: random prompts seldom repeat two.
NGRAM = SpeculationConfig(
    method="ngram", num_speculative_tokens=4, prompt_lookup_min=1, prompt_lookup_max=3
)
MAX_NUM_SEQS, MAX_TOKENS = 16, 512  # of a step


@dataclass(frozen=True, slots=True)
class Mode:
    """Mode of the engine. runner, scheduler: fields of their configurations that differ from the usual ones.

    has_few_blocks: the scheduler has hardly more blocks than the longest sequence needs. happened:
    whether the statistics show that the mode was in force.
    """

    name: str
    runner: Mapping[str, Any] = field(default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    has_few_blocks: bool = False
    has_adapters: bool = False
    # Whether steps are launched ahead; drafts need the tokens before them on the host.
    is_ahead: bool = True
    happened: Callable[[SchedulerStats], bool] = lambda stats: True

    def variant(self, adapter: str) -> Variant:
        return Variant(self.runner.get("quantization"), self.runner.get("kv_dtype"), adapter)


MODES = (
    Mode("one at a time", scheduler={"max_num_seqs": 1}),
    Mode("batched"),
    Mode("chunked prompts", scheduler={"max_num_batched_tokens": 24}),
    Mode("preempted", has_few_blocks=True, happened=lambda stats: stats.preemptions > 0),
    Mode("prefix cache", scheduler={"prefix_caching": True, "max_num_seqs": 2},
         happened=lambda stats: stats.prefix_hits_tokens > 0),
    Mode("n-gram speculation", scheduler={"speculation": NGRAM}, is_ahead=False,
         happened=lambda stats: stats.draft_tokens > 0),
    Mode("eager", runner={"enforce_eager": True}),
    Mode("LoRA", runner={"max_adapters": 2}, scheduler={"max_adapters": 2}, has_adapters=True),
    Mode("int8 weights", runner={"quantization": "int8"}),
    Mode("int4 weights", runner={"quantization": "int4"}),
    Mode("int8 KV", runner={"kv_dtype": "int8"}, scheduler={"max_num_batched_tokens": 24}),
    Mode("fp8 KV", runner={"kv_dtype": "float8_e4m3fn"}),
)  # fmt: skip


def make_runner(subject: Subject, mode: Mode, device: str, new_tokens: int) -> Runner:
    """Load the model of a subject, and record its CUDA graphs. Kernels are compiled when first launched."""
    longest = max(map(len, subject.prompts)) + new_tokens
    config = RunnerConfig(
        model_dir=subject.model_dir, device=device, dtype="bfloat16",
        num_blocks=len(subject.prompts) * _blocks(longest), block_size=BLOCK_SIZE,
        max_num_seqs=MAX_NUM_SEQS, max_num_batched_tokens=MAX_TOKENS, max_model_len=longest + 1,
        **mode.runner,
    )  # fmt: skip
    runner = Runner(PagedModel.load(config))
    runner.warm_up(())
    if mode.has_adapters:
        adapters: Any = runner.adapters
        for name, folder in subject.adapter_dirs.items():
            checkpoint = AdapterCheckpoint.check(
                AdapterFolder(folder), adapters.targets, max_rank=config.max_lora_rank
            )
            adapters.add(name, checkpoint.read(torch.bfloat16))
    return runner


def adapters_of(subject: Subject, mode: Mode) -> list[str]:
    """The adapter of each prompt: one of all, or none."""
    names = ("", *ADAPTERS) if mode.has_adapters else ("",)
    return [names[index % len(names)] for index in range(len(subject.prompts))]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of a runner. num_ahead: steps launched before the one before them was waited for."""

    tokens: list[list[int]]
    stats: SchedulerStats
    num_steps: int
    num_ahead: int


def answer(subject: Subject, mode: Mode, runner: Runner, new_tokens: int) -> Answers:
    """Answer all prompts as the engine's loop does: the next step is launched before a wait."""
    scheduler = Scheduler(scheduler_config(subject, mode, new_tokens))
    sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
    adapters = adapters_of(subject, mode)
    outputs: dict[str, list[int]] = {str(index): [] for index in range(len(adapters))}
    for index, (prompt, adapter) in enumerate(zip(subject.prompts, adapters, strict=True)):
        scheduler.add(
            EngineSequence(str(index), prompt, sampling, frozenset(), 0.0, adapter=adapter)
        )
    in_flight: deque[tuple[Step, PendingStep]] = deque()
    num_steps = num_ahead = 0
    while True:
        step = scheduler.schedule(0.0)
        if step is not None:
            num_steps += 1
            num_ahead += bool(in_flight)
            in_flight.append((step, runner.launch(step)))
        if not in_flight:
            break
        if step is None or len(in_flight) >= runner.depth:
            computed, handle = in_flight.popleft()
            for event in scheduler.complete(computed, handle.wait(), 0.0):
                outputs[event.request_id] += event.token_ids
    scheduler.check()
    return Answers(list(outputs.values()), scheduler.stats(), num_steps, num_ahead)


def scheduler_config(subject: Subject, mode: Mode, new_tokens: int) -> SchedulerConfig:
    longest = max(map(len, subject.prompts)) + new_tokens
    most_blocks = len(subject.prompts) * _blocks(longest)
    options = {
        "max_num_seqs": MAX_NUM_SEQS, "max_num_batched_tokens": MAX_TOKENS,
        "prefix_caching": False, "max_num_queued_seqs": len(subject.prompts),
        "block_size": BLOCK_SIZE, "max_model_len": longest + 1,
        "num_blocks": -(-longest // BLOCK_SIZE) if mode.has_few_blocks else most_blocks,
    }  # fmt: skip
    return SchedulerConfig(**options | dict(mode.scheduler))


def _blocks(num_tokens: int) -> int:
    return -(-num_tokens // BLOCK_SIZE) + 1


def complete_answers(answers: Answers, prompts: Sequence[object], new_tokens: int) -> list[str]:
    """Describe what is missing of the answers; empty if each prompt has all of its tokens."""
    lengths = [len(tokens) for tokens in answers.tokens]
    if lengths == [new_tokens] * len(prompts):
        return []
    return [f"answers of {lengths} tokens, not of {new_tokens}"]
