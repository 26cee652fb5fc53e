"""Steps of models of one layer, which launch all kernels that steps of the whole model launch.

They run on the CPU with weights that are not initialized, for launches that only compile.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from benchmarks.gpu.shapes import config_of
from benchmarks.gpu.workloads.models import BLOCK_SIZE, DTYPE, use_kernels_on_cpu
from torch import nn

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, Step
from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM

PROMPT_TOKENS = 32  # tiles of attention are the same for longer prompts
GREEDY = SamplingParams(max_tokens=1, temperature=0.0)


def model_launches(shape: str, batch_sizes: tuple[int, ...]) -> list[Callable[[], object]]:
    """A prompt, and a decode step of each batch size, as a launch each.

    batch_sizes: of a dense model one is enough; blocks of experts' products depend on it.
    """
    prompt = [_sequence("0", PROMPT_TOKENS)]
    decodes = [[_sequence(str(row), 1) for row in range(size)] for size in batch_sizes]
    return [partial(run_step, shape, sequences) for sequences in (prompt, *decodes)]


def run_step(shape: str, sequences: list[ScheduledSequence]) -> None:
    """Run a step of a model of one layer. Only the first sequence is sampled, as the head is large."""
    use_kernels_on_cpu()
    config = ModelConfig.parse(config_of(shape, is_small=False) | {"num_hidden_layers": 1}, {})
    limits = RunnerConfig(
        model_dir=Path(), device="cpu", dtype="bfloat16", num_blocks=PROMPT_TOKENS,
        block_size=BLOCK_SIZE, max_num_seqs=len(sequences), max_num_batched_tokens=PROMPT_TOKENS,
        max_model_len=config.max_model_len,
    )  # fmt: skip
    decoder = DecoderForCausalLM(
        config, max_positions=config.max_model_len, dtype=DTYPE, device="cpu"
    )
    for module in decoder.modules():
        for leaf, parameter in list(module.named_parameters(recurse=False)):
            value = torch.empty(parameter.shape, dtype=DTYPE)
            setattr(module, leaf, nn.Parameter(value, requires_grad=False))
    runner = Runner(PagedModel(decoder, limits))
    runner.warm_up(())
    first, *others = sequences
    runner.run(Step((first, *(sequence._replace(is_sampled=False) for sequence in others))))


def _sequence(name: str, num_tokens: int) -> ScheduledSequence:
    tokens = (0,) * num_tokens
    table = tuple(range(-(-num_tokens // BLOCK_SIZE)))
    return ScheduledSequence(name, 0, tokens, table, True, GREEDY, tokens, num_tokens)
