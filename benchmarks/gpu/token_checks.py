"""Checks the engine's greedy tokens in bfloat16 against transformers', in each mode of the engine.

The models are small and random, but have heads and layers of real models. The first item compiles the
kernels of all modes ahead.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from benchmarks.engine.kernel_equality import skip_what_is_idle
from benchmarks.gpu.compile_ahead import compile_for, counted_compilations
from benchmarks.gpu.context import Context, Item, Record
from benchmarks.gpu.greedy.judging import judge_tokens, summarize
from benchmarks.gpu.greedy.modes import (
    MODES,
    Mode,
    adapters_of,
    answer,
    complete_answers,
    make_runner,
)
from benchmarks.gpu.greedy.subject import CONFIGS, Subject
from benchmarks.gpu.workloads.models import use_kernels_on_cpu
from transformers.utils import logging

from penstock_engine.execution.runner import Runner
from penstock_engine.kernels.operations import BY_DEVICE, TRITON
from penstock_engine.machine.device import release_memory
from penstock_engine.quantization import int4

NEW_TOKENS, FEW_NEW_TOKENS = 32, 4  # of an answer; the latter under the interpreter
COMPILE_PARTS = 3  # processes that share the variants of one runner
# Share of the tokens; if fewer are equal, the models are too sensitive to show a fault.
LEAST_EQUAL_SHARE = 0.7


class Engines:
    """The subjects, and the runner that was used last, which modes with the same settings share."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.new_tokens = FEW_NEW_TOKENS if context.is_small else NEW_TOKENS
        self.subjects = {
            name: Subject(name, context.device, context.seed, is_small=context.is_small)
            for name in CONFIGS
        }
        self._last: tuple[tuple[str, Any], Runner] | None = None

    def runner(self, subject: Subject, mode: Mode) -> Runner:
        key = (subject.name, mode.runner)
        if self._last is None or self._last[0] != key:
            self._last = None
            release_memory(self.context.device)
            runner = make_runner(subject, mode, self.context.device, self.new_tokens)
            if self.context.is_small:
                # A step gets the tokens of the one before as on a GPU: on the device.
                runner.depth = 2
            self._last = key, runner
        return self._last[1]


def items(context: Context) -> Iterator[Item]:
    """The items: compile ahead, then each mode of each model."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if context.is_small:
        use_kernels_on_cpu()
        skip_what_is_idle()
    engines = Engines(context)
    yield Item("compile ahead", partial(_compile_ahead, engines))
    for subject in engines.subjects.values():
        for mode in MODES:
            yield Item(f"{subject.name}, {mode.name}", partial(check_mode, engines, subject, mode))


def check_mode(engines: Engines, subject: Subject, mode: Mode) -> Record:
    """Answer all prompts in a mode, and judge each token."""
    with counted_compilations() as compiled:
        runner = engines.runner(subject, mode)
        answers = answer(subject, mode, runner, engines.new_tokens)
    judgements = [
        judge_tokens(subject.reference(variant), prompt, tokens, variant.kv_dtype)
        for prompt, tokens, variant in zip(
            subject.prompts, answers.tokens, map(mode.variant, adapters_of(subject, mode)),
            strict=True,
        )
    ]  # fmt: skip
    record = summarize(judgements)
    wrong = complete_answers(answers, subject.prompts, engines.new_tokens)
    if not mode.happened(answers.stats):
        wrong.append("the mode was not in force")
    if runner.depth > 1 and bool(answers.num_ahead) != mode.is_ahead:
        wrong.append(f"{answers.num_ahead} steps were launched ahead")
    if record["equal"] < LEAST_EQUAL_SHARE * record["tokens"]:
        wrong.append(f"only {record['equal']} of {record['tokens']} tokens are equal")
    if wrong:
        if "difference" in record:
            wrong.insert(0, record["difference"])
        record |= {"ok": False, "difference": "; ".join(wrong)}
    figures = {"steps": answers.num_steps, "steps_ahead": answers.num_ahead}
    return {**record, **figures, "compiled": len(compiled)}


def _compile_ahead(engines: Engines) -> Record:
    context = engines.context
    launches = []
    for subject in engines.subjects.values():
        assert subject.model_dir.exists()  # it is made before the processes need it
        assert subject.adapter_dirs
        for mode in MODES:
            launches += [
                partial(_compile_part, engines, subject, mode, part) for part in range(COMPILE_PARTS)
            ]  # fmt: skip
    return compile_for(context, launches)


def _compile_part(engines: Engines, subject: Subject, mode: Mode, part: int) -> None:
    """Answer on the CPU, where launches compile their share of the variants and nothing is computed."""
    with computing_nothing(), compiling_share(part, COMPILE_PARTS):
        runner = make_runner(subject, mode, "cpu", engines.new_tokens)
        runner.depth = 2
        answer(subject, mode, runner, engines.new_tokens)


@contextmanager
def computing_nothing() -> Iterator[None]:
    """Within the block, the CPU has kernels, whose launches are replaced, and all else computes zeros.

    Zeros are valid tokens, which the next step looks up.
    """
    functional: Any = torch.nn.functional
    empty = torch.empty
    replaced = [
        (torch, "empty", lambda *args, **options: empty(*args, **options).zero_()),
        (
            functional,
            "linear",
            lambda x, weight, bias=None: x.new_zeros(*x.shape[:-1], len(weight)),
        ),
        (int4, "kernel_block_rows", lambda: None),  # the layout of a GPU's weights
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    on_cpu = BY_DEVICE["cpu"]
    for owner, name, function in replaced:
        setattr(owner, name, function)
    BY_DEVICE["cpu"] = replace(TRITON, recorder=lambda: lambda compute: (compute(), compute)[1])
    try:
        yield
    finally:
        BY_DEVICE["cpu"] = on_cpu
        for owner, name, function in originals:
            setattr(owner, name, function)


@contextmanager
def compiling_share(part: int, num_parts: int) -> Iterator[None]:
    """Within the block, only variants of one part of several are compiled."""
    from triton import knobs

    def is_skipped(**launch: Any) -> bool:
        return zlib.crc32(f"{launch['repr']} {launch['key']}".encode()) % num_parts != part

    previous = knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = is_skipped
    try:
        yield
    finally:
        knobs.runtime.jit_cache_hook = previous
