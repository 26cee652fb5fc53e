"""Checks an adapter's settings: adapter_config.json in PEFT's format."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from penstock_engine.core.errors import ModelError

# PEFT settings that change the computation and are not implemented, with their supported values.
SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "bias": ("none",),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, []),
    "target_parameters": (None, []),
    "alora_invocation_tokens": (None, []),
    "arrow_config": (None,),
    "lora_bias": (False, None),
    "use_qalora": (False, None),
    "use_bdlora": (False, None),
    "kasa_config": (None,),
    "monteclora_config": (None,),
    "init_lora_weights": (True, False, None, "eva", "gaussian", "orthogonal"),
}
# Values of init_lora_weights with which PEFT changes the weights of the base model. PEFT converts such
# adapters to plain ones, whose init_lora_weights is true.
CHANGED_BASES = ("corda", "loftq", "lora_ga", "olora", "pissa")
# Modules that hold the vocabulary.
EMBEDDINGS = ("embed_tokens", "lm_head", "embed_in", "embed_out", "wte")
MODULE_NAME = re.compile(r"\^?(\w|\\?\.)+\$?")
# Settings by which some modules of a layer, or some layers, have no factors.
PARTIAL = ("exclude_modules", "layers_to_transform", "layers_pattern")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Checked settings of an adapter."""

    # rank, alpha: defaults, for projections that ranks and alphas do not name
    rank: int
    alpha: float
    # ranks, alphas: exceptions, by names or ends of names of projections
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    uses_rslora: bool
    modules: tuple[str, ...]  # names or ends of names of the adapted projections; empty: unknown
    is_partial: bool  # whether some projections with these names have no factors

    def rank_of(self, target: str) -> int:
        """Rank of a projection's factors."""
        return next((r for name, r in self.ranks.items() if is_named(target, name)), self.rank)

    def scale_of(self, target: str) -> float:
        """Factor of the product of a projection's matrices."""
        rank = self.rank_of(target)
        named = (alpha for name, alpha in self.alphas.items() if is_named(target, name))
        return next(named, self.alpha) / (math.sqrt(rank) if self.uses_rslora else rank)


def parse_adapter_config(
    config: Mapping[str, Any], targets: Collection[str], max_rank: int
) -> AdapterConfig:
    """Check the contents of adapter_config.json. targets: names of the projections that can be adapted.

    Raises ModelError, whose message says what to change.
    """
    _check_settings(config)
    if config.get("r") is None:
        raise ModelError("RankMissing", "adapter_config.json has no rank r")
    return AdapterConfig(
        rank=_rank(config["r"], "r", max_rank),
        alpha=_number(config.get("lora_alpha"), "lora_alpha"),
        ranks={
            name: _rank(rank, f"rank_pattern {_short(name)}", max_rank)
            for name, rank in _by_module(config, "rank_pattern", targets).items()
        },
        alphas={
            name: _number(alpha, f"alpha_pattern {_short(name)}")
            for name, alpha in _by_module(config, "alpha_pattern", targets).items()
        },
        uses_rslora=bool(config.get("use_rslora")),
        modules=_modules(config, targets),
        is_partial=any(config.get(name) not in (None, [], "") for name in PARTIAL),
    )


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
    if value is True:
        return ModelError("SettingUnsupported", f"the adapter sets {name}, which is not supported")
    return ModelError("SettingUnsupported", f"{name} {_short(value)} is not supported")


def _rank(rank: Any, name: str, max_rank: int) -> int:
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ModelError("ConfigInvalid", f"{name} must be a positive whole number")
    if rank > max_rank:
        raise ModelError(
            "RankTooLarge",
            f"the adapter has rank {rank}, but the engine was started for at most {max_rank}: "
            "raise --max-lora-rank",
        )
    return rank


def _number(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e9:
        raise ModelError("ConfigInvalid", f"{name} must be a positive number")
    return float(value)


def _by_module(config: Mapping[str, Any], key: str, targets: Collection[str]) -> dict[str, Any]:
    """Values by names or ends of names of modules, from rank_pattern or alpha_pattern.

    PEFT takes regular expressions. Those of an untrusted file could run for hours, so only names are
    taken, also with escaped dots or anchored.
    """
    given = config.get(key) or {}
    if not isinstance(given, dict):
        raise ModelError("ConfigInvalid", f"{key} must be a JSON object")
    if len(given) > len(targets):
        raise ModelError("ConfigInvalid", f"{key} has more names than the model has projections")
    for name in given:
        if not MODULE_NAME.fullmatch(name):
            raise ModelError(
                "SettingUnsupported",
                f"{key} {_short(name)} is not supported: name the modules instead of a pattern",
            )
    return {name.replace("\\.", "."): value for name, value in given.items()}


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
    """Whether PEFT takes a name in target_modules, or in a pattern, for this projection."""
    end = module.removesuffix("$")
    return target == end.removeprefix("^") or target.endswith(f".{end}")


def target_unsupported(what: str, targets: Collection[str]) -> ModelError:
    known = sorted({name.rpartition(".")[2] for name in targets})
    return ModelError(
        "TargetUnsupported",
        f"{what}, which this engine cannot adapt in this model; it adapts {', '.join(known)}",
    )


def _short(value: Any) -> str:
    return repr(value if isinstance(value, str) else str(value))[:80]
