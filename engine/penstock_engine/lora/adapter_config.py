"""Checks an adapter's settings: adapter_config.json in PEFT's format."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock_engine.core.errors import ModelError

# PEFT settings that change the computation and are not implemented, with their supported values.
SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, []),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "arrow_config": (None,),
    "lora_bias": (False, None),
    "use_qalora": (False, None),
    "use_bdlora": (False, None),
    "init_lora_weights": (True, False, None, "eva", "gaussian", "orthogonal"),
}
# Values of init_lora_weights with which PEFT changes the weights of the base model. PEFT converts such
# adapters to plain ones, whose init_lora_weights is true.
CHANGED_BASES = ("corda", "loftq", "lora_ga", "olora", "pissa")
# Modules that hold the vocabulary.
EMBEDDINGS = ("embed_tokens", "lm_head", "embed_in", "embed_out", "wte")
# Settings by which some modules of a layer, or some layers, have no factors.
PARTIAL = ("exclude_modules", "layers_to_transform", "layers_pattern")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Checked settings of an adapter.

    scale: factor of the product of its matrices. modules: names or ends of names of the adapted
    projections; empty: unknown. is_partial: whether some projections with these names have no factors.
    """

    rank: int
    scale: float
    modules: tuple[str, ...]
    is_partial: bool


def parse_adapter_config(
    config: Mapping[str, Any], targets: Collection[str], max_rank: int
) -> AdapterConfig:
    """Check the contents of adapter_config.json. targets: names of the projections that can be adapted.

    Raises ModelError, whose message says what to change.
    """
    _check_settings(config)
    rank = _rank(config, max_rank)
    alpha = _number(config, "lora_alpha")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    modules = _modules(config, targets)
    is_partial = any(config.get(name) not in (None, [], "") for name in PARTIAL)
    return AdapterConfig(rank, scale, modules, is_partial)


def embeddings_changed(what: str) -> ModelError:
    return ModelError(
        "EmbeddingsChanged",
        f"{what}: the adapter has embeddings of its own, and engines serve those of the model; merge the "
        "adapter into its model",
    )


def _check_settings(config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise ModelError("PeftTypeUnsupported", f"peft_type {_short(kind)} is not supported")
    saved = config.get("modules_to_save")
    if isinstance(saved, list) and any(str(name).endswith(EMBEDDINGS) for name in saved):
        raise embeddings_changed(f"modules_to_save is {_short(saved)}")
    if saved not in (None, []):
        raise ModelError("SettingUnsupported", f"modules_to_save {_short(saved)} is not supported")
    for name, supported in SUPPORTED.items():
        if name in config and config[name] not in supported:
            raise _unsupported(name, config[name])


def _unsupported(name: str, value: Any) -> ModelError:
    if name == "init_lora_weights" and str(value).startswith(CHANGED_BASES):
        return ModelError(
            "BaseWeightsChanged",
            f"{name} {_short(value)} has changed the model's own weights, and the served model is unchanged: "
            "save the adapter with PEFT's path_initial_model_for_weight_conversion, or serve the changed "
            "model",
        )
    return ModelError("SettingUnsupported", f"{name} {_short(value)} is not supported")


def _rank(config: Mapping[str, Any], max_rank: int) -> int:
    rank = config.get("r")
    if rank is None:
        raise ModelError("RankMissing", "adapter_config.json has no rank r")
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ModelError("ConfigInvalid", "r must be a positive whole number")
    if rank > max_rank:
        raise ModelError(
            "RankTooLarge",
            f"the adapter has rank {rank}, but the engine was started for at most {max_rank}: "
            f"raise spec.engine.lora.maxRank, which is --max-lora-rank",
        )
    return rank


def _number(config: Mapping[str, Any], name: str) -> float:
    value = config.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e9:
        raise ModelError("ConfigInvalid", f"{name} must be a positive number")
    return float(value)


def _modules(config: Mapping[str, Any], targets: Collection[str]) -> tuple[str, ...]:
    """The names in target_modules. A text is a pattern, or all-linear: it is not compared."""
    modules = config.get("target_modules")
    if not isinstance(modules, list):
        return ()
    for name in modules:
        if not isinstance(name, str):
            raise ModelError("ConfigInvalid", "target_modules must be a list of names")
        if name.endswith(EMBEDDINGS):
            raise embeddings_changed(f"target_modules has {_short(name)}")
        if not any(is_named(target, name) for target in targets):
            raise target_unsupported(f"target_modules has {_short(name)}", targets)
    return tuple(modules)


def is_named(target: str, module: str) -> bool:
    """Whether PEFT takes `module` in target_modules for this projection."""
    return target == module or target.endswith(f".{module}")


def target_unsupported(what: str, targets: Collection[str]) -> ModelError:
    known = sorted({name.rpartition(".")[2] for name in targets})
    return ModelError(
        "TargetUnsupported",
        f"{what}, which this engine cannot adapt in this model; it adapts {', '.join(known)}",
    )


def _short(value: Any) -> str:
    return repr(value if isinstance(value, str) else str(value))[:80]
