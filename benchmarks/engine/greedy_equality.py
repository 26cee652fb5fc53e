"""Compares the engine's greedy tokens with transformers' under batching, chunking, caching and preemption.

    python -m benchmarks.engine.greedy_equality [--prompts 50] [--longest 600] [--new-tokens 32]
                                         [--families llama,qwen3] [--dtypes float32,bfloat16]
                                         [--concurrency 1,16] [--chunks 16,256] [--tensor-parallel 2]
                                         [--pipeline-parallel 2] [--expert-parallel]

Small random models of each family answer prompts of 1 to --longest tokens: with transformers' generate, one
prompt at a time, and with the engine at several concurrencies and chunk sizes, with the prefix cache and
n-gram speculation on and off, with so few blocks that sequences are preempted, and optionally with a model
sharded over processes. verdicts.py explains each difference as a tie, noise, or another choice of experts.
Any other difference is a fault, and the exit status is 1.
"""

import itertools
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from benchmarks.options import option_parser
from tests.support.engine.expert_choices import EngineRouters, ReferenceRouters
from tests.support.engine.families import FAMILIES, VOCAB_SIZE
from tests.support.engine.verdicts import VERDICTS, Judge, Judgement, Reference, compare

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import ONE_RANK, Layout

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Setting:
    concurrency: int
    chunk_tokens: int
    prefix_caching: bool
    speculates: bool


@dataclass(frozen=True, slots=True)
class Result:
    family: str
    dtype: str
    setting: Setting
    judgements: list[Judgement]
    stats: SchedulerStats
    duration_s: float

    @property
    def verdicts(self) -> Counter[str]:
        return Counter(judgement.verdict for judgement in self.judgements)


# A single sequence, and many that preempt each other.
SETTINGS = (
    Setting(1, 256, False, False),
    Setting(1, 256, True, True),
    Setting(1, 16, True, False),
    *(
        Setting(16, *values)
        for values in itertools.product((16, 256), (False, True), (False, True))
    ),
)
# Other number types differ only in rounding, so fewer settings suffice.
BFLOAT16_SETTINGS = (Setting(1, 256, False, False), Setting(16, 16, True, True))
# Match one token: random prompts seldom repeat two.
NGRAM = SpeculationConfig(
    method="ngram", num_speculative_tokens=4, prompt_lookup_min=1, prompt_lookup_max=3
)


def make_prompts(
    num_prompts: int, longest: int, seed: int, *, shortest: int = 1
) -> list[list[int]]:
    """Prompts with log-spaced lengths from shortest to longest; every second one shares a prefix."""
    draw = random.Random(seed)
    document = [draw.randrange(VOCAB_SIZE) for _ in range(longest)]
    prompts = []
    for index in range(num_prompts):
        length = round(shortest * (longest / shortest) ** (index / max(1, num_prompts - 1)))
        num_shared = draw.randrange(length + 1) if index % 2 else 0
        own = [draw.randrange(VOCAB_SIZE) for _ in range(length - num_shared)]
        prompts.append(document[:num_shared] + own)
    draw.shuffle(prompts)
    return prompts


def reference(model: transformers.PreTrainedModel, prompt: list[int], new_tokens: int) -> Reference:
    with ReferenceRouters(model).recording() as routers:
        output = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=new_tokens,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    tokens = output.sequences[0, len(prompt) :].tolist()
    return Reference(prompt, tokens, torch.cat(output.logits).float(), routers)


def room(prompts: list[list[int]], new_tokens: int) -> dict[str, int]:
    """Number of blocks, slightly more than the longest prompt needs."""
    longest = max(map(len, prompts)) + new_tokens
    num_blocks = -(-longest // BLOCK_SIZE) + 4
    return {"num_blocks": num_blocks, "block_size": BLOCK_SIZE, "max_model_len": longest + 1}


def generate(
    directory: Path,
    prompts: list[list[int]],
    new_tokens: int,
    setting: Setting,
    dtype: str = "float32",
    **options: Any,
) -> tuple[list[list[int]], Scheduler]:
    """Answers of the engine. options: further fields of RunnerConfig."""
    runner = load(directory, prompts, new_tokens, (setting,), dtype, **options)
    with closing(runner):
        window_tokens = ModelConfig.load(directory).window_tokens
        return answer(runner, prompts, new_tokens, setting, window_tokens)


def load(
    directory: Path,
    prompts: list[list[int]],
    new_tokens: int,
    settings: tuple[Setting, ...],
    dtype: str,
    **options: Any,
) -> Runner:
    config = RunnerConfig(
        model_dir=directory, device="cpu", dtype=dtype,
        max_num_seqs=max(s.concurrency for s in settings),
        max_num_batched_tokens=max(s.chunk_tokens for s in settings),
        **room(prompts, new_tokens), **options,
    )  # fmt: skip
    return Runner.load(config)


def answer(
    runner: Runner | EngineRouters, prompts: list[list[int]], new_tokens: int, setting: Setting,
    window_tokens: int | None,
) -> tuple[list[list[int]], Scheduler]:  # fmt: skip
    """Answer each prompt with a runner that has blocks for them. window_tokens: attention window."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=setting.concurrency,
            max_num_batched_tokens=setting.chunk_tokens,
            prefix_caching=setting.prefix_caching,
            max_num_queued_seqs=len(prompts),
            speculation=NGRAM if setting.speculates else None,
            window_tokens=window_tokens,
            **room(prompts, new_tokens),
        )
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens)
    outputs: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    for index, prompt in enumerate(prompts):
        scheduler.add(Sequence(str(index), prompt, sampling, frozenset(), 0.0))
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs[event.request_id] += event.token_ids
    scheduler.check()
    return list(outputs.values()), scheduler


def campaign(
    families: tuple[str, ...], settings: tuple[Setting, ...], *,
    num_prompts: int, longest: int, new_tokens: int, seed: int, dtype: str = "float32",
    layout: Layout = ONE_RANK,
) -> Iterator[Result]:  # fmt: skip
    for name in families:
        family = FAMILIES[name]
        prompts = make_prompts(num_prompts, longest, seed, shortest=family.shortest)
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            torch.manual_seed(seed)
            family.make(directory)
            model = family.load(directory, dtype)
            references = [reference(model, prompt, new_tokens) for prompt in prompts]
            judge = None if dtype == "float32" else Judge(model, references)
            window_tokens = ModelConfig.load(directory).window_tokens
            runner = load(directory, prompts, new_tokens, settings, dtype, layout=layout)
            listening = None
            if judge is not None and references[0].routers:
                listening = EngineRouters(runner)
            with closing(runner):
                for setting in settings:
                    started = time.monotonic()
                    outputs, scheduler = answer(
                        listening or runner, prompts, new_tokens, setting, window_tokens
                    )
                    duration_s = time.monotonic() - started
                    judgements = [
                        compare(expected, tokens)
                        if judge is None
                        else judge.judge(index, tokens, listening)
                        for index, (expected, tokens) in enumerate(
                            zip(references, outputs, strict=True)
                        )
                    ]
                    yield Result(name, dtype, setting, judgements, scheduler.stats(), duration_s)


def main() -> None:
    args = option_parser(
        __doc__, prompts=50, longest=600, new_tokens=32, families=",".join(FAMILIES),
        dtypes="float32,bfloat16", concurrency="1,16", chunks="16,256", seed=0,
        tensor_parallel=1, pipeline_parallel=1, expert_parallel=False,
    ).parse_args()  # fmt: skip
    transformers.utils.logging.disable_progress_bar()
    print("family     dtype     concurrency  chunk  cache  ngram", *VERDICTS,
          "preemptions    hits  drafts     gap   noise  router     s", sep="  ")  # fmt: skip
    total: Counter[str] = Counter()
    concurrency = set(map(int, args.concurrency.split(",")))
    chunks = dict(zip((16, 256), map(int, args.chunks.split(",")), strict=True))
    for dtype in args.dtypes.split(","):
        settings = SETTINGS if dtype == "float32" else BFLOAT16_SETTINGS
        for r in campaign(
            tuple(args.families.split(",")),
            tuple(
                replace(s, chunk_tokens=chunks[s.chunk_tokens])
                for s in settings
                if s.concurrency in concurrency
            ),
            num_prompts=args.prompts, longest=args.longest, new_tokens=args.new_tokens,
            seed=args.seed, dtype=dtype,
            layout=Layout(args.tensor_parallel, args.pipeline_parallel, args.expert_parallel),
        ):  # fmt: skip
            s = r.setting
            total += r.verdicts
            on_off = [("off", "on")[flag] for flag in (s.prefix_caching, s.speculates)]
            print(
                f"{r.family:10} {r.dtype:9} {s.concurrency:11} {s.chunk_tokens:6}",
                *(f"{word:>5}" for word in on_off),
                *(f"{r.verdicts[verdict]:{len(verdict)}}" for verdict in VERDICTS),
                f"{r.stats.preemptions:11} {r.stats.prefix_hits_tokens:7} {r.stats.draft_tokens:7}",
                *(
                    f"{max(getattr(judgement, name) for judgement in r.judgements):6.4f}"
                    for name in ("gap", "noise", "router_gap")
                ),
                f"{r.duration_s:5.1f}",
                sep="  ",
                flush=True,
            )
    print("in all:", ", ".join(f"{total[verdict]} {verdict}" for verdict in VERDICTS))
    sys.exit(1 if total["different"] else 0)


if __name__ == "__main__":
    main()
