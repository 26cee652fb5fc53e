"""Model configuration, parsed and checked from config.json or a GGUF file. Imports no torch."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from penstock_engine.checkpoints.gguf.config import make_config
from penstock_engine.checkpoints.gguf.file import find_gguf, read_gguf
from penstock_engine.checkpoints.weights import LOOKED_UP, PRODUCTS
from penstock_engine.core.errors import ModelError
from penstock_engine.files.file_access import check_searchable
from penstock_engine.files.json_reader import read_json_object
from penstock_engine.models.attention import Projection
from penstock_engine.models.fields import (
    config_error,
    read_count,
    read_number,
    read_optional_number,
)
from penstock_engine.models.layer import LayerConfig, parse_layers
from penstock_engine.models.registry import BIAS_KEYS, FAMILIES, Biased, Family
from penstock_engine.models.rope import RopeConfig, max_model_len, parse_ropes
from penstock_engine.quantization.formats.parse import checkpoint_method, parse_format
from penstock_engine.quantization.rounding import Quantization, RoundToNearest
from penstock_engine.quantization.scheme import Scheme

Activation = Literal["silu", "gelu", "gelu_new", "gelu_pytorch_tanh"]
ACTIVATIONS: tuple[Activation, ...] = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh")


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """Mixture-of-experts parameters.

    renormalizes: whether the weights of a token's experts are scaled to sum to 1.
    """

    num_experts: int
    num_experts_per_token: int
    intermediate_size: int
    renormalizes: bool


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Architecture parameters of a model."""

    architecture: str
    family: Family
    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    norm_eps: float
    activation: Activation
    biases: frozenset[Biased]  # the products that add a bias
    logits_softcap: float | None  # limits x to softcap * tanh(x / softcap); None: no limit
    tie_word_embeddings: bool
    layers: tuple[LayerConfig, ...]
    experts: ExpertsConfig | None
    ropes: tuple[RopeConfig, ...]  # rotary embedding of each layer
    max_model_len: int  # positions that the model supports
    eos_token_ids: frozenset[int]  # of tokens that end an answer
    # quantization, quantization_method: format of the weights of a quantized checkpoint, and its name; None:
    # not quantized
    quantization: Scheme | None
    quantization_method: str | None

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def window_tokens(self) -> int | None:
        """The largest sliding window, the token itself included; None: some layer has full attention."""
        longest = 0
        for layer in self.layers:
            if layer.window_tokens is None:
                return None
            longest = max(longest, layer.window_tokens)
        return longest

    @property
    def widest_intermediate_size(self) -> int:
        """Intermediate size of a token in the widest MLP, summed over its experts."""
        if self.experts is None:
            return self.intermediate_size
        chosen = self.experts.num_experts_per_token * self.experts.intermediate_size
        return max(chosen, self.intermediate_size)

    def num_adapter_parameters(self, rank: int) -> int:
        """Number of parameters of a LoRA adapter for all products that can be adapted, without experts."""
        adaptable = (one for one in self._projections if not one.is_read_directly)
        attention = sum(sum(projection.shape) for projection in adaptable)
        mlp = 3 * (self.hidden_size + self.intermediate_size)
        return rank * (attention + self.num_layers * mlp)

    def scheme(self, quantization: Quantization | None, dtype: str) -> Scheme | None:
        """How weights are stored on the device: as in the checkpoint, or rounded. None: in dtype.

        quantization: the requested rounding. dtype: of the model, by torch's name. Raises ModelError
        if rounding is requested for a checkpoint that is already quantized.
        """
        if quantization is None or self.quantization is not None:
            if quantization is not None:
                raise ModelError(
                    "QuantizedAlready",
                    f"the checkpoint is quantized already, so it cannot be rounded to "
                    f"{quantization}",
                )
            return self.quantization
        products = self._checkpoint_names({*PRODUCTS, *(one.name for one in self._projections)})
        return RoundToNearest(quantization, dtype, products - self.dense_modules)

    @property
    def dense_modules(self) -> frozenset[str]:
        """Modules that are dequantized when they are loaded: last parts of their names in the checkpoint."""
        read = {one.name for one in self._projections if one.is_read_directly}
        return self._checkpoint_names({*LOOKED_UP, *read})

    @property
    def _projections(self) -> list[Projection]:
        """The projections of attention in all layers."""
        return [one for layer in self.layers for one in layer.attention.projections]

    def _checkpoint_names(self, names: Set[str]) -> frozenset[str]:
        return frozenset(self.family.names.get(name, name) for name in names)

    @classmethod
    def load(cls, model_dir: Path) -> "ModelConfig":
        """Read the configuration of a model directory.

        Raises ModelError (ModelNotFound, NotAModel, UnsupportedArchitecture, BadConfig), and OSError if
        a file cannot be read.
        """
        if not model_dir.exists():
            raise ModelError("ModelNotFound", "there is no model directory at this place")
        check_searchable(model_dir)
        if (path := find_gguf(model_dir)) is not None:
            return cls.parse(make_config(read_gguf(path)), {})
        if not (model_dir / "config.json").is_file():
            raise ModelError("NotAModel", "the directory has no config.json")
        raw = _read_json(model_dir / "config.json")
        generation_path = model_dir / "generation_config.json"
        generation = _read_json(generation_path) if generation_path.is_file() else {}
        return cls.parse(raw, generation)

    @classmethod
    def parse(cls, raw: Mapping[str, Any], generation: Mapping[str, Any]) -> "ModelConfig":
        """Parse the contents of config.json and generation_config.json. Raises ModelError."""
        name = _architecture(raw)
        family = FAMILIES[name]
        raw = {**family.defaults, **raw}
        _refuse_unsupported(raw, family)
        layers = parse_layers(raw, family)
        ropes = parse_ropes(raw, family, layers)
        return cls(
            architecture=name,
            family=family,
            model_type=str(raw.get("model_type", "")),
            vocab_size=read_count(raw, "vocab_size"),
            hidden_size=read_count(raw, "hidden_size"),
            intermediate_size=read_count(raw, "intermediate_size"),
            norm_eps=_norm_eps(raw, family),
            activation=_activation(raw, family),
            biases=_biases(raw, family),
            logits_softcap=read_optional_number(raw, "final_logit_softcapping"),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            layers=layers,
            experts=_experts(raw) if family.mlp == "experts" else None,
            ropes=ropes,
            max_model_len=max_model_len(ropes),
            eos_token_ids=_token_ids(raw) | _token_ids(generation),
            quantization=parse_format(raw),
            quantization_method=checkpoint_method(raw),
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except ValueError as error:
        raise config_error(str(error)) from error


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures")
    names = names if isinstance(names, list) else []
    for name in names:
        if isinstance(name, str) and name in FAMILIES:
            return name
    found = f"architecture {', '.join(map(str, names))} is not supported"
    if not names:
        found = "config.json names no architectures"
    raise ModelError(
        "UnsupportedArchitecture", f"{found}; supported are {', '.join(sorted(FAMILIES))}"
    )


def _refuse_unsupported(raw: Mapping[str, Any], family: Family) -> None:
    """Raise ModelError for settings that change the computation and are not implemented."""
    for key in ("use_bidirectional_attention", "qk_layernorm"):
        if raw.get(key):
            raise config_error(f"{key} is not supported, only false")
    if raw.get("tie_word_embeddings") and "lm_head" in family.biases:
        raise config_error(
            "tie_word_embeddings is not supported where the head has a bias, only false"
        )


def _norm_eps(raw: Mapping[str, Any], family: Family) -> float:
    if family.norm == "layer":
        return read_number(raw, "layer_norm_eps", 1e-5)
    return read_number(raw, "rms_norm_eps", 1e-6)


def _activation(raw: Mapping[str, Any], family: Family) -> Activation:
    name = raw.get("hidden_activation") or raw.get("hidden_act") or "silu"
    if name == "gelu" and family.defaults.get("hidden_act") == "gelu_pytorch_tanh":
        name = "gelu_pytorch_tanh"  # Gemma's first configs say gelu, but it was trained with this
    for activation in ACTIVATIONS:
        if name == activation:
            return activation
    raise config_error(f"hidden_act {name!r} is not supported, only {', '.join(ACTIVATIONS)}")


def _biases(raw: Mapping[str, Any], family: Family) -> frozenset[Biased]:
    asked = {key for key in BIAS_KEYS if key in family.defaults and raw.get(key)}
    return frozenset(family.biases).union(*(BIAS_KEYS[key] for key in asked))


def _experts(raw: Mapping[str, Any]) -> ExpertsConfig:
    num_experts = read_count(raw, "num_local_experts", read_count(raw, "num_experts"))
    num_experts_per_token = read_count(raw, "num_experts_per_tok")
    if num_experts_per_token > num_experts:
        raise config_error("num_experts_per_tok is more than there are experts")
    return ExpertsConfig(
        num_experts=num_experts,
        num_experts_per_token=num_experts_per_token,
        intermediate_size=read_count(
            raw, "moe_intermediate_size", read_count(raw, "intermediate_size")
        ),
        renormalizes=bool(raw.get("norm_topk_prob", False)),
    )


def _token_ids(raw: Mapping[str, Any]) -> frozenset[int]:
    ids = raw.get("eos_token_id")
    ids = ids if isinstance(ids, list) else [] if ids is None else [ids]
    if not all(type(i) is int for i in ids):
        raise config_error("eos_token_id must be a whole number or a list of whole numbers")
    return frozenset(ids)
