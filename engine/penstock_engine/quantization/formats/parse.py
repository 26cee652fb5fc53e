"""Selects the format of a quantized checkpoint from config.json. Imports no torch."""

from collections.abc import Callable, Mapping
from typing import Any

from penstock_engine.quantization.errors import unsupported
from penstock_engine.quantization.formats.awq import Awq
from penstock_engine.quantization.formats.compressed_tensors import CompressedTensors
from penstock_engine.quantization.formats.float8 import Float8
from penstock_engine.quantization.formats.gptq import Gptq
from penstock_engine.quantization.scheme import Scheme

FORMATS: Mapping[str, Callable[[Mapping[str, Any]], Scheme]] = {
    "awq": Awq.parse,
    "compressed-tensors": CompressedTensors.parse,
    "fp8": Float8.parse,
    "gptq": Gptq.parse,
}


def parse_format(config: Mapping[str, Any]) -> Scheme | None:
    """Parse quantization_config of config.json; None if the checkpoint is not quantized.

    config: the whole config.json. Raises ModelError.
    """
    raw = _section(config)
    if not raw:
        return None
    if not isinstance(raw, dict):
        raise unsupported("quantization_config must be a JSON object")
    if not raw.get("quant_method"):
        raise unsupported("quantization_config has no quant_method, such as awq")
    method = str(raw["quant_method"])
    if method not in FORMATS:
        raise unsupported(
            f"checkpoints quantized by {method} are not supported, only by "
            f"{', '.join(sorted(FORMATS))}: take the unquantized model, with --quantization int8 or "
            f"int4"
        )
    try:
        return FORMATS[method](raw)
    except (AttributeError, KeyError, TypeError) as error:
        raise unsupported("quantization_config of config.json is damaged") from error


def checkpoint_method(config: Mapping[str, Any]) -> str | None:
    """The method of a quantized checkpoint, such as awq; None if it is not quantized."""
    raw = _section(config)
    return str(raw.get("quant_method")) if isinstance(raw, dict) and raw else None


def _section(config: Mapping[str, Any]) -> Any:
    return config.get("quantization_config") or config.get("compression_config")
