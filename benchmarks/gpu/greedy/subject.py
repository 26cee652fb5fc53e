"""Small random models, with transformers' references of each variant of their weights."""

import copy
import random
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.support.engine.families import LLAMA3, Family
from tests.support.engine.kernel_references import dequantize_kv
from tests.support.engine.merged import weight_changes
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from penstock_engine.kernels.kv_quant import quantize_kv
from penstock_engine.lora.adapter_files import WEIGHTS_NAME
from penstock_engine.make_model.adapters import make_adapter
from penstock_engine.models.config import ModelConfig
from penstock_engine.quantization.matrix import QuantizedMatrix
from penstock_engine.quantization.rounding import Quantization

# Grouped heads, of 64 and of 128; one with biases, the other with norms of heads and tied embeddings.
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "Llama",
        {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
         "attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3},
    ),
    "qwen3": (
        "Qwen3",
        {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
         "tie_word_embeddings": True},
    ),
}  # fmt: skip
# The spread of weights makes attention prefer few keys, so that a missing key changes the answer.
LARGE = {
    "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4,
    "initializer_range": 0.07,
}  # fmt: skip
SMALL = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
    "num_attention_heads": 4, "head_dim": 32, "initializer_range": 0.2,
}  # fmt: skip
# Prompts by their numbers of tokens. While some decode they need more blocks than there may be.
LARGE_PROMPTS = (1, 2, 900, 31, 32, 33, 15, 400, 64, 7, 130, 200, 16, 17, 100, 600)
SMALL_PROMPTS = (30, 14, 37)
ADAPTERS = ("first", "second")
# Frobenius norm of an adapter relative to its weight: every answer changes, and attention stays soft.
ADAPTER_STRENGTH, ADAPTER_RANK = 0.7, 8


@dataclass(frozen=True, slots=True)
class Variant:
    """The number types of weights, keys and values of a model, and the adapter merged into it."""

    quantization: Quantization | None = None
    kv_dtype: str | None = None
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A model of transformers in bfloat16, and one in float32 with weights that are not rounded.

    The weights of the former are those of the latter, rounded to bfloat16.
    """

    rounded: transformers.PreTrainedModel
    exact: transformers.PreTrainedModel


class Subject:
    """A model in files, its adapters, prompts and references. All are made when first needed."""

    def __init__(self, name: str, device: str, seed: int, *, is_small: bool) -> None:
        self.name, self.device = name, device
        self._seed, self._is_small = seed, is_small
        architecture, config = CONFIGS[name]
        self._family = Family(architecture, config | (SMALL if is_small else LARGE))
        self._references: dict[Variant, Reference] = {}

    @cached_property
    def _folder(self) -> Path:
        """The folder of all files, which goes with the subject or at the end of the process."""
        folder = Path(tempfile.mkdtemp(prefix="greedy-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    @cached_property
    def model_dir(self) -> Path:
        """The checkpoint, whose weights are in bfloat16."""
        full, path = self._folder / "full", self._folder / "model"
        torch.manual_seed(self._seed)
        self._family.make(full)
        self._family.load(full, "bfloat16").save_pretrained(path)
        return path

    @cached_property
    def adapter_dirs(self) -> dict[str, Path]:
        """Adapters whose factors are in bfloat16, as the engine holds them."""
        folders = {}
        for index, name in enumerate(ADAPTERS):
            folder = folders[name] = self._folder / name
            make_adapter(
                self.model_dir, folder, seed=self._seed + index, rank=ADAPTER_RANK,
                strength=ADAPTER_STRENGTH,
            )  # fmt: skip
            factors = load_file(folder / WEIGHTS_NAME)
            rounded = {key: factor.bfloat16() for key, factor in factors.items()}
            save_file(rounded, folder / WEIGHTS_NAME, metadata={"format": "pt"})
        return folders

    @cached_property
    def prompts(self) -> list[list[int]]:
        """Prompts of very different lengths; every second one begins as a common document does."""
        draw = random.Random(self._seed)
        vocab_size = self._family.config["vocab_size"]
        lengths = SMALL_PROMPTS if self._is_small else LARGE_PROMPTS
        document = [draw.randrange(vocab_size) for _ in range(max(lengths))]
        prompts = []
        for index, length in enumerate(lengths):
            num_shared = length * 3 // 4 if index % 2 == 0 else 0
            own = [draw.randrange(vocab_size) for _ in range(length - num_shared)]
            prompts.append(document[:num_shared] + own)
        return prompts

    def reference(self, variant: Variant) -> Reference:
        """The reference of a variant's weights. Its keys and values are rounded by `rounding_kv`."""
        key = Variant(variant.quantization, None, variant.adapter)
        if key not in self._references:
            self._references[key] = self._make_reference(key)
        return self._references[key]

    @cached_property
    def _model(self) -> Any:
        model: Any = self._family.load(self.model_dir, "bfloat16")
        return model.to(self.device)

    @torch.inference_mode()
    def _make_reference(self, variant: Variant) -> Reference:
        exact: Any = copy.deepcopy(self._model)
        exact.float()  # in place; buffers such as those of the rotary embedding are float32 already
        if variant.quantization is not None:
            self._quantize(exact, variant.quantization)
        if variant.adapter:
            for name, change in weight_changes(self.adapter_dirs[variant.adapter]).items():
                exact.get_parameter(name).data.add_(change.to(self.device))
        rounded = copy.deepcopy(self._model)
        for name, parameter in rounded.named_parameters():
            parameter.data.copy_(exact.get_parameter(name))
        return Reference(rounded, exact)

    def _quantize(self, exact: transformers.PreTrainedModel, quantization: Quantization) -> None:
        """Replace weights by what their codes and scales stand for, as the engine rounds them."""
        scheme = ModelConfig.load(self.model_dir).scheme(quantization, "bfloat16")
        assert scheme is not None
        weights = {name: parameter.bfloat16().cpu() for name, parameter in exact.named_parameters()}
        tensors = _Tensors(weights)
        for name in weights:
            module, _, leaf = name.rpartition(".")
            matrix = scheme.read(tensors, module) if leaf == "weight" else None
            if matrix is not None:
                exact.get_parameter(name).data.copy_(_meaning(matrix))


def _meaning(matrix: QuantizedMatrix) -> torch.Tensor:
    """The matrix that codes stand for: (code - zero) * scale, where zero * scale is a number in bfloat16."""
    group = torch.arange(matrix.shape[1]) // matrix.group_size
    scales = matrix.scales.float()
    weight = matrix.codes.float() * scales[:, group]
    if matrix.zeros is not None:
        weight -= (matrix.zeros.float() * scales).bfloat16().float()[:, group]
    return weight


class _Tensors:
    """Weights by name, as a scheme of quantization reads them."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self._weights = weights

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def get(self, name: str) -> torch.Tensor:
        return self._weights[name]


def rounding_kv(kv_dtype: str | None) -> Any:
    """Context that rounds the keys and values of transformers' attention to 8 bits.

    kv_dtype: int8 or float8_e4m3fn; None: they stay as they are.
    """
    return nullcontext() if kv_dtype is None else _rounding_kv(getattr(torch, kv_dtype))


@contextmanager
def _rounding_kv(kv_dtype: torch.dtype) -> Iterator[None]:
    functions: Any = ALL_ATTENTION_FUNCTIONS
    attend = functions["sdpa"]

    def attend_rounded(
        module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        *args: Any, **options: Any,
    ) -> Any:  # fmt: skip
        key, value = (
            dequantize_kv(*quantize_kv(x, kv_dtype), dtype=x.dtype) for x in (key, value)
        )  # fmt: skip
        return attend(module, query, key, value, *args, **options)

    functions["sdpa"] = attend_rounded  # until it is deleted, instead of the library's own
    try:
        yield
    finally:
        del functions["sdpa"]
