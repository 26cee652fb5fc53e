"""Reads LoRA adapters in PEFT's format: adapter_config.json and adapter_model.safetensors.

An adapter is checked against the model before its tensors are read, so that a wrong one costs no
memory.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from penstock_engine.core.errors import ModelError

CONFIG_NAME = "adapter_config.json"
WEIGHTS_NAME = "adapter_model.safetensors"
MAX_CONFIG_BYTES = 1 << 20

# base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight
TENSOR = re.compile(r"\Abase_model\.model\.(?P<target>[\w.]+)\.lora_(?P<side>[AB])\.weight\Z")

# PEFT settings that change the computation and are not implemented, with their supported values.
SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, []),
    "lora_bias": (False, None),
    "init_lora_weights": (True, False, None, "eva", "gaussian", "orthogonal"),
}

# Values of init_lora_weights with which PEFT changes the weights of the base model. PEFT converts such
# adapters to plain ones, whose init_lora_weights is true.
CHANGED_BASES = ("corda", "loftq", "lora_ga", "olora", "pissa")


@dataclass(frozen=True, slots=True)
class Factors:
    """LoRA factors of one projection, to which they add (x @ a.T) @ b.T.

    a: [rank, inputs]; b: [outputs, rank].
    """

    a: torch.Tensor
    b: torch.Tensor


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter.

    factors: by the projection's name in the model's checkpoint; b is already scaled.
    """

    rank: int
    factors: Mapping[str, Factors]

    @property
    def num_bytes(self) -> int:
        pairs = self.factors.values()
        return sum(f.a.nbytes + f.b.nbytes for f in pairs)


def read_adapter(
    folder: Path,
    targets: Mapping[str, tuple[int, int]],
    *,
    max_rank: int,
    dtype: torch.dtype,
) -> Adapter:
    """Read an adapter from a directory into host memory.

    targets: (outputs, inputs) of each projection of the model that can be adapted, by name. dtype: of
    the factors in memory. Raises ModelError (AdapterNotFound, BadAdapter, AdapterMismatch), whose
    message says what to change.
    """
    config = _read_config(folder)
    rank = _rank(config, max_rank)
    alpha = _number(config, "lora_alpha")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    factors: dict[str, Factors] = {}
    try:
        with safe_open(folder / WEIGHTS_NAME, framework="pt", device="cpu") as file:
            names = _pairs(list(file.keys()))
            for target, (a_name, b_name) in names.items():
                _check_target(target, targets)
                outputs, inputs = targets[target]
                _check_shape(target, "A", file.get_slice(a_name).get_shape(), [rank, inputs])
                _check_shape(target, "B", file.get_slice(b_name).get_shape(), [outputs, rank])
            for target, (a_name, b_name) in names.items():
                b = file.get_tensor(b_name).to(torch.float32) * scale
                a = file.get_tensor(a_name).to(dtype, copy=True)  # a copy, not a view of the file
                factors[target] = Factors(a, b.to(dtype))
    except FileNotFoundError as error:
        raise ModelError("AdapterNotFound", f"the folder has no {WEIGHTS_NAME}") from error
    except (OSError, SafetensorError) as error:
        raise ModelError("BadAdapter", f"{WEIGHTS_NAME} is damaged or incomplete") from error
    if not factors:
        raise ModelError("BadAdapter", f"{WEIGHTS_NAME} adapts nothing")
    return Adapter(rank, factors)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise ModelError("AdapterNotFound", f"there is no {CONFIG_NAME} at this place")
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ValueError("too large")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError("BadAdapter", f"{CONFIG_NAME} cannot be read") from error
    if not isinstance(config, dict):
        raise ModelError("BadAdapter", f"{CONFIG_NAME} must be a JSON object")
    for name, supported in SUPPORTED.items():
        if name in config and config[name] not in supported:
            raise ModelError("BadAdapter", _refusal(name, config[name]))
    return config


def _refusal(name: str, value: Any) -> str:
    setting = f"{name} {str(value)[:64]!r}"
    if name == "init_lora_weights" and str(value).startswith(CHANGED_BASES):
        return (
            f"{setting} has changed the model's own weights, and the served model is unchanged: save the "
            "adapter with PEFT's path_initial_model_for_weight_conversion, or serve the changed model"
        )
    return f"{setting} is not supported"


def _rank(config: Mapping[str, Any], max_rank: int) -> int:
    rank = config.get("r")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ModelError("BadAdapter", "r must be a positive whole number")
    if rank > max_rank:
        raise ModelError(
            "AdapterMismatch",
            f"the adapter has rank {rank}, but the engine was started for at most {max_rank}: "
            f"raise spec.engine.lora.maxRank, which is --max-lora-rank",
        )
    return rank


def _number(config: Mapping[str, Any], name: str) -> float:
    value = config.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise ModelError("BadAdapter", f"{name} must be a positive number")
    return float(value)


def _pairs(names: list[str]) -> dict[str, tuple[str, str]]:
    """Tensor names (of A, of B) by target. Raises ModelError if a tensor has no counterpart."""
    sides: dict[str, dict[str, str]] = {}
    for name in names:
        match = TENSOR.match(name)
        if match is None:
            raise ModelError("BadAdapter", f"tensor {name[:128]} is no factor of a LoRA product")
        sides.setdefault(match["target"], {})[match["side"]] = name
    for target, pair in sides.items():
        if pair.keys() != {"A", "B"}:
            raise ModelError("BadAdapter", f"{target} has only one of its two factors")
    return {target: (pair["A"], pair["B"]) for target, pair in sides.items()}


def _check_target(target: str, targets: Mapping[str, tuple[int, int]]) -> None:
    if target not in targets:
        known = sorted({name.rpartition(".")[2] for name in targets})
        raise ModelError(
            "AdapterMismatch",
            f"the adapter changes {target}, which this engine cannot adapt in this model; it "
            f"adapts {', '.join(known)}",
        )


def _check_shape(target: str, side: str, actual: list[int], expected: list[int]) -> None:
    if list(actual) != expected:
        raise ModelError(
            "AdapterMismatch",
            f"factor {side} of {target} has shape {list(actual)}, but this model needs "
            f"{expected}: was the adapter made for another model?",
        )
