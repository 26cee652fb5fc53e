"""Exceptions of the engine.

ModelError          the model directory cannot be served, or not with the available memory
RunnerDiedError     the runner that computes the steps has died; the engine has to restart
"""

from collections.abc import Mapping
from typing import Literal

Remedy = Literal[
    "Memory", "MoreMemory", "AcceleratorMemory", "MoreAcceleratorMemory", "MoreRanks", "Quantization",
    "KVCacheMemory", "ModelLength", "DraftModel", "Safetensors",
]  # fmt: skip
Remedies = Mapping[Remedy, int | None]

# Advice by remedy; {} is its quantity. A preflight reports the names and quantities too, so
# that the control plane can say the same of the fields of its own API.
REMEDIES: Mapping[Remedy, str] = {
    "Memory": "give the engine at least {} MiB of memory",
    "MoreMemory": "give the engine at least {} MiB more memory",
    "AcceleratorMemory": "take accelerators with at least {} MiB each",
    "MoreAcceleratorMemory": "take accelerators with at least {} MiB more memory each",
    "MoreRanks": "split the weights over more of them with --tensor-parallel-size",
    "Quantization": "set --quantization",
    "KVCacheMemory": "set --kv-cache-memory-bytes to at least {}M",
    "ModelLength": "set --max-model-len to at most {}",
    "DraftModel": "name one in --speculative-config that was made for this model",
    "Safetensors": "convert the model to safetensors",
}


class ModelError(ValueError):
    """The model directory cannot be served. The message has the problem and the remedies.

    reason: a CamelCase word for machines. problem: a sentence for people. remedies: alternatives, each with
    its quantity; None: it has none.
    """

    def __init__(self, reason: str, problem: str, remedies: Remedies | None = None) -> None:
        super().__init__(f"{problem}: {_alternatives(remedies)}" if remedies else problem)
        self.reason, self.problem, self.remedies = reason, problem, remedies or {}


def _alternatives(remedies: Remedies) -> str:
    *others, last = (REMEDIES[name].format(quantity) for name, quantity in remedies.items())
    return f"{', '.join(others)}, or {last}" if others else last


class RunnerDiedError(RuntimeError):
    """The runner has died, for example because a worker process ended. No step can succeed."""
