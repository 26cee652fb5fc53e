"""Models of a shape with random weights, made on the device without files."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from benchmarks.gpu.context import Context
from benchmarks.gpu.shapes import config_of
from torch import nn

from penstock_engine.execution.paged_model import PagedModel
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.operations import BY_DEVICE, TRITON
from penstock_engine.machine.device import release_memory
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.step_cost import StepCostModel

DTYPE = torch.bfloat16
BLOCK_SIZE = 16  # tokens; the engine's default
STANDARD_DEVIATION = 0.02  # as models are initialized before training; activations stay finite


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on the device. cost: of its steps. weight_bytes: of all parameters."""

    name: str
    model: PagedModel
    runner: Runner
    limits: RunnerConfig
    cost: StepCostModel
    weight_bytes: int
    kv_bytes_per_token: int


class ModelStore:
    """Keeps the model that was asked for last; only one model is on the device at a time."""

    def __init__(self, make: Callable[[str], LoadedModel]) -> None:
        """make: makes the model of a shape."""
        self._make = make
        self._loaded: LoadedModel | None = None

    def get(self, name: str) -> LoadedModel:
        """The model of a shape, which is made if the last one was of another shape."""
        if self._loaded is None or self._loaded.name != name:
            if self._loaded is not None:
                device = self._loaded.model.device
                self._loaded = None
                release_memory(device)
            self._loaded = self._make(name)
        return self._loaded


def make_model(
    name: str, context: Context, *, num_blocks: int, max_num_seqs: int,
    max_num_batched_tokens: int, max_model_len: int,
) -> LoadedModel:  # fmt: skip
    """Make a model of a shape, its KV cache of random numbers, and a runner with recorded graphs."""
    if context.is_small:
        use_kernels_on_cpu()
    config = parse_shape(name, is_small=context.is_small)
    limits = RunnerConfig(
        model_dir=Path(),  # nothing is loaded
        device=context.device, dtype="bfloat16", num_blocks=num_blocks, block_size=BLOCK_SIZE,
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
    )  # fmt: skip
    decoder = random_decoder(config, max_model_len, context.device, context.seed)
    model = PagedModel(decoder, limits)
    fill_cache(model)
    weight_bytes = sum(each.nbytes for each in decoder.parameters())
    kv_bytes_per_token = decoder.shard.kv_block_bytes(BLOCK_SIZE, DTYPE.itemsize) // BLOCK_SIZE
    cost = StepCostModel(config, weight_bytes, kv_bytes_per_token)
    runner = Runner(model)
    runner.warm_up(())
    return LoadedModel(
        name, model, runner, limits, cost, weight_bytes, kv_bytes_per_token
    )  # fmt: skip


def parse_shape(name: str, *, is_small: bool) -> ModelConfig:
    return ModelConfig.parse(config_of(name, is_small=is_small), {})


def random_decoder(
    config: ModelConfig, max_positions: int, device: str, seed: int
) -> DecoderForCausalLM:
    """A decoder in bfloat16 whose weights are normally distributed, and whose norms are 1.

    Raises RuntimeError if a number is left as it was allocated.
    """
    decoder = DecoderForCausalLM(config, max_positions=max_positions, dtype=DTYPE, device=device)
    generator = torch.Generator(device).manual_seed(seed)
    for module in decoder.modules():
        for leaf, parameter in list(module.named_parameters(recurse=False)):
            value = torch.full(parameter.shape, torch.nan, dtype=DTYPE, device=device)
            if value.dim() == 1:
                value.fill_(0.0 if leaf == "bias" else 1.0)
            else:
                value.normal_(0.0, STANDARD_DEVIATION, generator=generator)
            setattr(module, leaf, nn.Parameter(value, requires_grad=False))
    for name, parameter in decoder.named_parameters():
        if parameter.is_meta or not bool(parameter.isfinite().all()):
            raise RuntimeError(f"parameter {name} was not filled")
    return decoder


def fill_cache(model: PagedModel) -> None:
    """Write random numbers to the KV cache.

    Zeros would be read with less power. The last block stays as it is: padding reads it.
    """
    for cache in model._caches:
        cache.numbers[:, :-1].normal_()


def use_kernels_on_cpu() -> None:
    """Launch kernels on the CPU, for Triton's interpreter or to compile; a recorded step is computed anew."""
    BY_DEVICE["cpu"] = replace(TRITON, recorder=lambda: lambda compute: compute)
