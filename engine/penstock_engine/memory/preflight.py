"""Checks whether a model can be served, from its configuration and tensor headers. Imports no torch.

`serve` starts with the same checks and calculations, so that a model that passes here can be served.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from penstock_engine.core.errors import ModelError
from penstock_engine.files.file_access import check_searchable
from penstock_engine.files.json_reader import read_json_object
from penstock_engine.machine import device
from penstock_engine.memory.plan import MemoryPlan, plan_memory
from penstock_engine.options.config import EngineConfig

# Memory of an accelerator that is unknown: enough for any model.
UNBOUNDED_BYTES = 1 << 60

Scope = Literal["model", "files", "folder"]

# Configurations of models that other programs serve: of Hugging Face, and of Mistral.
CONFIG_FILES = ("config.json", "params.json")
FOUND = {"ok": True, "reason": "Found", "message": "the model is there; its runtime checks it"}


def find_model(model_dir: Path, scope: Scope) -> dict[str, Any]:
    """Check a model that another program serves: its folder, and for `files` its configuration as well.

    Raises OSError if they cannot be read.
    """
    if not model_dir.exists():
        return _refused("ModelNotFound", f"there is nothing at this place ({model_dir})")
    check_searchable(model_dir)
    if scope == "files" and model_dir.is_dir() and not any(model_dir.glob("*.gguf")):
        return _find_configuration(model_dir)
    return FOUND


def _find_configuration(model_dir: Path) -> dict[str, Any]:
    for name in CONFIG_FILES:
        if not (model_dir / name).is_file():
            continue
        try:
            read_json_object(model_dir / name)
        except ValueError as error:
            return _refused("BadConfig", str(error))
        return FOUND
    return _refused("NotAModel", "the folder has no config.json")


def refusal(error: ModelError, model_dir: Path) -> dict[str, Any]:
    """The verdict for an error: with remedies, also the problem apart from them."""
    if error.remedies:
        problem = {"problem": error.problem, "remedies": dict(error.remedies)}
        return _refused(error.reason, str(error)) | problem
    place = f" ({model_dir})" if error.reason == "ModelNotFound" else ""
    return _refused(error.reason, f"{error}{place}")


def bad_arguments(message: str) -> dict[str, Any]:
    """The verdict for a command line that the engine does not take."""
    return _refused("BadArguments", message)


def _refused(reason: str, message: str) -> dict[str, Any]:
    """The verdict of a refusal. Operators of other versions read it: entries may only be added."""
    return {"ok": False, "reason": reason, "message": message, "remedies": {}}


def preflight(
    config: EngineConfig,
    *,
    memory_limit_bytes: int | None = None,
    accelerator_memory_bytes: int | None = None,
) -> dict[str, Any]:
    """Check a model. Returns {"ok": true, …} or {"ok": false, "reason", …}. Raises OSError.

    memory_limit_bytes: of an engine on the CPU; None: the limit of this process.
    accelerator_memory_bytes: of each GPU, for device cuda; None: unknown, so the model fits in any case.
    A GPU's driver takes some of its memory, which is not counted: a model that is refused cannot be
    served, and one that is not may still be too large by some hundred MiB.
    """
    is_cuda = config.device == "cuda"
    try:
        if is_cuda:
            memory_plan = _plan_for_gpu(config, accelerator_memory_bytes or UNBOUNDED_BYTES)
        else:
            limit_bytes = memory_limit_bytes or device.memory_limit_bytes()
            memory = device.DeviceMemory(limit_bytes)
            memory_plan = plan_memory(config, device_name="cpu", memory=memory)
    except ModelError as error:
        return refusal(error, config.model_dir)
    verdict = _verdict(memory_plan, config)
    if not is_cuda:
        return verdict
    if accelerator_memory_bytes is None:
        depends_on_memory = ("kv_capacity_tokens", "max_num_seqs", "max_num_batched_tokens")
        verdict |= dict.fromkeys(depends_on_memory)
    return verdict | {"accelerator_memory_bytes": accelerator_memory_bytes}


def _plan_for_gpu(config: EngineConfig, memory_bytes: int) -> MemoryPlan:
    """The memory plan for GPUs of this memory. dtype auto is taken for bfloat16. Raises ModelError."""
    dtype = "bfloat16" if config.dtype == "auto" else config.dtype
    memory = device.DeviceMemory(memory_bytes)
    return plan_memory(replace(config, dtype=dtype), device_name="cuda", memory=memory)


def _verdict(memory_plan: MemoryPlan, config: EngineConfig) -> dict[str, Any]:
    """The verdict for a model that can be served."""
    is_dtype_known = config.device != "cuda" or config.dtype != "auto"  # some GPUs have no bfloat16
    return {
        "ok": True,
        "architecture": memory_plan.model.architecture,
        "model_type": memory_plan.model.model_type,
        "weights_bytes": memory_plan.weights_bytes,
        "kv_bytes_per_token": memory_plan.kv_bytes_per_token,
        "max_model_len": memory_plan.max_model_len,
        "eos_token_ids": sorted(memory_plan.model.eos_token_ids),
        "kv_capacity_tokens": memory_plan.kv_capacity_tokens,
        "max_num_seqs": memory_plan.max_num_seqs,
        "max_num_batched_tokens": memory_plan.max_num_batched_tokens,
        "quantization": config.quantization or memory_plan.model.quantization_method,
        "dtype": memory_plan.dtype if is_dtype_known else None,
    }
