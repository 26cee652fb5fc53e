"""Whether a model can be served, from its headers alone. Imports no torch."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock_engine.config import EngineConfig, size
from penstock_engine.core.errors import ModelError
from penstock_engine.device import memory_limit_bytes
from penstock_engine.models.config import ModelConfig
from penstock_engine.weights import MAX_HEADER_BYTES, checkpoint_files

# What a user of an InferenceService can do about each reason, where the message does not say it.
HINTS = {
    "ModelNotFound": "set spec.model.uri to a folder that exists",
    "NotAModel": "set spec.model.uri to the folder that holds config.json",
    "UnsupportedArchitecture": "set spec.model.uri to a model of a supported architecture",
    "BadConfig": "mend config.json, or set spec.model.uri to another model",
    "NoSafetensors": "convert the weights to safetensors; pickled files are never read",
    "BadWeights": "copy the model to spec.model.uri again",
    "NoTokenizer": "put the model's tokenizer.json into the folder of spec.model.uri",
}


def preflight(config: EngineConfig) -> dict[str, Any]:
    """The verdict as it is printed: {"ok": true, …} or {"ok": false, "reason", "message"}."""
    device_name = "cuda" if config.device == "cuda" else "cpu"
    try:
        check_files(config.model_dir)
        if device_name == "cuda":  # the accelerator's memory is seen where it is, by the engine
            sized = size(_sized_on_cpu(config), device_name="cpu", memory_limit_bytes=1 << 60)
        else:
            limit_bytes = memory_limit_bytes()
            sized = size(config, device_name="cpu", memory_limit_bytes=limit_bytes)
    except ModelError as error:
        hint = HINTS.get(error.reason)
        message = f"{error}; {hint}" if hint else str(error)
        return {"ok": False, "reason": error.reason, "message": message}
    return {
        "ok": True,
        "architecture": sized.model.architecture,
        "model_type": sized.model.model_type,
        "weights_bytes": sized.weights_bytes,
        "kv_bytes_per_token": sized.kv_bytes_per_token,
        "max_model_len": sized.max_model_len,
        "kv_capacity_tokens": sized.num_blocks * config.block_size,
    }


def _sized_on_cpu(config: EngineConfig) -> EngineConfig:
    return replace(config, dtype="bfloat16" if config.dtype == "auto" else config.dtype)


def check_files(model_dir: Path) -> None:
    """Raises ModelError when a file is missing or shorter than its header says."""
    ModelConfig.load(model_dir)
    for path in checkpoint_files(model_dir):
        if path.stat().st_size != _stated_bytes(path):
            raise ModelError("BadWeights", f"{path.name} is not as long as its header says")
    if not (model_dir / "tokenizer.json").is_file():
        raise ModelError("NoTokenizer", "the folder has no tokenizer.json")


def _stated_bytes(path: Path) -> int:
    """The length that a safetensors header implies; -1 for a header that cannot be read."""
    try:
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(header_bytes, MAX_HEADER_BYTES)))
        ends = [e["data_offsets"][1] for name, e in header.items() if name != "__metadata__"]
        return 8 + header_bytes + max(ends, default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return -1
