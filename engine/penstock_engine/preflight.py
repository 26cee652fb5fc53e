"""Whether a model can be served, and how it fits, from its headers alone. Imports no torch.

`serve` starts with the same checks and the same arithmetic, so that what passes here starts there.
"""

from dataclasses import replace
from typing import Any

from penstock_engine import device
from penstock_engine.config import EngineConfig
from penstock_engine.core.errors import ModelError
from penstock_engine.sizing import size

# What the user of an InferenceService changes, where the message does not say it.
HINTS = {
    "ModelNotFound": "set spec.model.uri to a folder that exists",
    "NotAModel": "set spec.model.uri to the folder that holds config.json",
    "UnsupportedArchitecture": "set spec.model.uri to a model of a supported architecture",
    "BadConfig": "set spec.model.uri to a model with a config.json that can be served",
    "BadWeights": "copy the complete model to the place that spec.model.uri names",
    "WeightsMismatch": "set spec.model.uri to weights and config.json of one and the same model",
    "QuantizedAlready": "leave --quantization out",
    "UnsupportedQuantization": "set spec.model.uri to a checkpoint that can be read",
    "NoTokenizer": "set spec.model.uri to a folder that holds the model's tokenizer.json too",
    "BadTokenizer": "set spec.model.uri to a folder with the tokenizer.json of this model",
}


def preflight(config: EngineConfig, *, memory_limit_bytes: int | None = None) -> dict[str, Any]:
    """The verdict as it is printed: {"ok": true, …} or {"ok": false, "reason", "message"}.

    memory_limit_bytes: the engine's; None is the limit of this process. An accelerator's memory is
    seen only by the engine beside it: for device cuda only what does not depend on it is judged.
    """
    try:
        if config.device == "cuda":
            dtype = "bfloat16" if config.dtype == "auto" else config.dtype
            config, memory_limit_bytes = replace(config, dtype=dtype), 1 << 60
        limit_bytes = memory_limit_bytes or device.memory_limit_bytes()
        sizing = size(config, device_name="cpu", memory_limit_bytes=limit_bytes)
    except ModelError as error:
        hint = HINTS.get(error.reason)
        message = f"{error}: {hint}" if hint else str(error)
        return {"ok": False, "reason": error.reason, "message": message}
    return {
        "ok": True,
        "architecture": sizing.model.architecture,
        "model_type": sizing.model.model_type,
        "weights_bytes": sizing.weights_bytes,
        "kv_bytes_per_token": sizing.kv_bytes_per_token,
        "max_model_len": sizing.max_model_len,
        "kv_capacity_tokens": sizing.kv_capacity_tokens,
    }
