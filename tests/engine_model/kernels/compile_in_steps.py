"""Checks that no step of a user needs a variant of a kernel that the warm-up did not.

Needs Triton but no GPU: nothing is compiled, and a launch computes nothing. Triton is asked only which
variant a launch needs. Run in a process of its own, by test_kernels.py.
"""

import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

torch.cuda.is_available = lambda: True  # so that the kernels are handed to Triton

from tests.support.engine.families import FAMILIES, Family  # noqa: E402
from tests.support.engine.named_device import NamedDevice, launching_for  # noqa: E402
from triton import knobs  # noqa: E402

from penstock_engine.core.sampling import SamplingParams  # noqa: E402
from penstock_engine.core.step import ScheduledSequence, Step  # noqa: E402
from penstock_engine.execution.draft_model import DraftModel  # noqa: E402
from penstock_engine.execution.paged_model import PagedModel  # noqa: E402
from penstock_engine.execution.runner import Runner  # noqa: E402
from penstock_engine.execution.runner_config import RunnerConfig  # noqa: E402
from penstock_engine.execution.warm_up import AnyToken, kernel_steps  # noqa: E402
from penstock_engine.kernels.attention_tile import ASSUMED_SHARED_KIB  # noqa: E402
from penstock_engine.kernels.operations import BY_DEVICE, TRITON  # noqa: E402
from penstock_engine.kernels.runtime import ASSUMED_MULTIPROCESSORS  # noqa: E402
from penstock_engine.lora.adapters import neutral_adapter  # noqa: E402

NUM_STEPS = 16
# Wide enough to split the inputs of products, with enough heads for each tile of attention to be another one.
# The vocabulary is odd, as some models have it.
WIDE = {
    "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2, "vocab_size": 301,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
}  # fmt: skip
SAMPLINGS = [
    SamplingParams(max_tokens=9, temperature=0.0),
    SamplingParams(max_tokens=9, top_k=3, min_p=0.1, seed=1, logprobs=2),
    SamplingParams(max_tokens=9, top_p=0.5, frequency_penalty=0.5),
    SamplingParams(max_tokens=9, repetition_penalty=1.2, logit_bias={1: 2.0}),
    SamplingParams(max_tokens=9, temperature=0.0, wants_embedding=True),
    SamplingParams(max_tokens=9, temperature=0.0, prompt_logprobs=1),
]
# Variants by the types and constants of their launches: several, if they differ by what Triton assumes of an
# argument, such as that a number is a multiple of 16.
variants: dict[str, set[str]] = {}


def note_variant(**launch: Any) -> bool:
    """Note the variant that would be compiled now. True: it must not be compiled."""
    variants.setdefault(describe(launch), set()).add(launch["key"])
    return True


def describe(launch: dict[str, Any]) -> str:
    """The kernel, its options, and the type of each argument or the value of each constant."""
    signature, constants = launch["compile"]["signature"], launch["compile"]["constants"]
    arguments: dict[str, object] = {}
    for index, parameter in enumerate(launch["fn"].jit_function.params):
        kind, value = signature[parameter.name], constants.get((index,))
        if kind == "constexpr" and not parameter.is_constexpr and value is not None:
            kind = "i32"  # Triton makes the number 1 a constant
        arguments[parameter.name] = value if kind == "constexpr" else kind
    return f"{launch['repr'].partition('(')[0]} {arguments}"


def choose_only(kernel: Any, grid: object) -> Callable[..., None]:
    def launch(*args: Any, **kwargs: Any) -> None:
        kernel.run(*args, grid=grid, warmup=True, **kwargs)
        if kernel.__name__ == "_gumbel_argmax_kernel":
            args[4].zero_()  # the sampled tokens, which the next step looks up

    return launch


class Steps:
    """Draws steps of any composition within the limits of a configuration."""

    def __init__(self, config: RunnerConfig, adapters: list[str], seed: int) -> None:
        self._config, self._adapters = config, adapters
        self._random = random.Random(seed)
        self._num_made = 0

    def draw(self) -> Step:
        config, draw = self._config, self._random
        left = draw.choice([3, 40, 300, config.max_num_batched_tokens])
        sequences: list[ScheduledSequence] = []
        most_chunks = draw.choice([0, 0, 1, 3])
        for _ in range(draw.choice([1, 2, 7, draw.randint(1, 24), config.max_num_seqs])):
            is_chunk = len(sequences) < most_chunks
            longest = draw.choice([2, 5, 33, 65, 400]) if is_chunk else 1
            sequence = self._sequence(draw.randint(1, min(longest, left)))
            left -= sequence.num_tokens + sequence.num_runner_drafts
            sequences.append(sequence)
            if left < 8:
                break
        return Step(tuple(sequences))

    def _sequence(self, num_tokens: int) -> ScheduledSequence:
        config, draw = self._config, self._random
        self._num_made += 1
        start = draw.randint(0, config.max_model_len - num_tokens - 4)
        num_drafts = draw.choice([0, 0, 0, num_tokens - 1]) if num_tokens < 6 else 0
        num_runner_drafts = draw.choice([0, 0, 2]) if num_tokens == 1 else 0
        sampling = draw.choice(SAMPLINGS)
        num_known = start + num_tokens - num_drafts
        num_blocks = -(-(start + num_tokens + num_runner_drafts) // config.block_size)
        return ScheduledSequence(
            str(self._num_made), start, (1,) * num_tokens,
            tuple(draw.randrange(config.num_blocks) for _ in range(num_blocks)),
            draw.random() < 0.9 or num_drafts > 0, sampling, (1,) * num_known,
            draw.randint(1, num_known), constraint=draw.choice([None, None, AnyToken()]),
            adapter=draw.choice(["", *self._adapters]), num_drafts=num_drafts,
            num_runner_drafts=num_runner_drafts,
            wants_prompt_logprobs=sampling.prompt_logprobs is not None,
        )  # fmt: skip


def check(family: str, *, drafts: bool = False, **options: Any) -> None:
    """Warm a model up, and run steps. drafts: whether the model drafts for itself."""
    print(f"{family} {options}", flush=True)
    variants.clear()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        made = FAMILIES[family]
        Family(made.name, made.config | WIDE).make(Path(folder))
        config = RunnerConfig(
            model_dir=Path(folder), device="cpu", dtype="bfloat16", num_blocks=64, block_size=16,
            max_num_seqs=40, max_num_batched_tokens=700, max_model_len=500,
            draft_model_dir=Path(folder) if drafts else None, **options,
        )  # fmt: skip
        model = PagedModel.load(config)
        own = replace(config, quantization=None, max_adapters=0)
        runner = Runner(model, DraftModel(PagedModel.load(own)) if drafts else None)
    runner.warm_up(kernel_steps(config, model.groupings))
    print(f"{len(variants)} variants", flush=True)
    several = {launch: keys for launch, keys in variants.items() if len(keys) > 1}
    assert not several, f"the warm-up compiles twice: {several}"
    adapters = ["a", "b", "c"][: config.max_adapters]
    for name in adapters:
        targets = list(runner.adapters.targets.items())
        runner.adapters.add(name, neutral_adapter(dict(targets[len(name) :: 2]), torch.bfloat16))
    steps = Steps(config, adapters, seed=len(family))
    for index in range(NUM_STEPS):
        step = steps.draw()
        before = {launch: set(keys) for launch, keys in variants.items()}
        runner.run(step)
        tokens = [(s.num_tokens, s.num_runner_drafts, s.adapter) for s in step.sequences]
        new = {launch: keys for launch, keys in variants.items() if before.get(launch) != keys}
        assert not new, f"step {index} of {tokens} compiles {new}"


knobs.runtime.jit_cache_hook = note_variant
BY_DEVICE["cpu"] = replace(TRITON, recorder=lambda: lambda compute: (compute(), compute)[1])
DEVICE = NamedDevice(90, ASSUMED_MULTIPROCESSORS, ASSUMED_SHARED_KIB)
with launching_for(DEVICE, choose_only):
    check("qwen3", quantization="int8", max_adapters=3, drafts=True)
    check(
        "qwen3", quantization="int4", max_adapters=3, max_lora_rank=64, kv_dtype="int8",
        enforce_eager=True,
    )  # fmt: skip
    check("mixtral", max_adapters=3)
    check("gemma2", kv_dtype="float8_e4m3fn")
    check("phi", drafts=True)
print("no step compiles")
