"""Whether and how an engine pod takes LoRA adapters, by the command line that it runs with.

The spec of the service says the same only of pods of its own revision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.core.runtimes import vllm
from penstock.core.runtimes.paths import ADAPTER_CACHE_MOUNT
from penstock.core.spec.service import ENGINE_CONTAINER, Object

LoraRuntime = Literal["Penstock", "VLLM"]
# Adapters that an engine reads at the same time. vLLM computes nothing meanwhile, so another one would only
# stop its requests for longer.
LOADS_AT_ONCE: Mapping[LoraRuntime, int] = {"Penstock": 4, "VLLM": 1}


# Most digits of a number of slots: engines have at most 1024, and Python refuses to read 4,300 digits.
MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class LoraEngine:
    """An engine that takes adapters.

    slots: most adapters in its memory at once. cache_claim: of the cache that it reads fetched adapters from;
    empty: it reads none.
    """

    runtime: LoraRuntime
    slots: int
    cache_claim: str = ""

    @property
    def loads_at_once(self) -> int:
        return LOADS_AT_ONCE[self.runtime]


def lora_engine(pod: Object) -> LoraEngine | None:
    """How the engine of a pod takes adapters; None if it takes none."""
    containers = pod["spec"]["containers"]
    engine: Object = next((each for each in containers if each["name"] == ENGINE_CONTAINER), {})
    slots = 0
    for arg in engine.get("args", []):
        flag, _, value = arg.partition("=")
        is_number = value.isdecimal() and len(value) <= MAX_DIGITS
        if flag in ("--max-loras", "--max-cpu-loras") and is_number:
            slots = max(slots, int(value))
    if not slots:
        return None
    is_vllm = engine.get("command") == list(vllm.RUNTIME.command)
    return LoraEngine("VLLM" if is_vllm else "Penstock", slots, _cache_claim(pod, engine))


def _cache_claim(pod: Object, engine: Object) -> str:
    """The claim that is mounted where fetched adapters are; empty if none is. engine: the container."""
    mounts = engine.get("volumeMounts") or ()
    names = {each["name"] for each in mounts if each.get("mountPath") == ADAPTER_CACHE_MOUNT}
    volumes = (each for each in pod["spec"].get("volumes") or () if each["name"] in names)
    claims = (each.get("persistentVolumeClaim") or {} for each in volumes)
    return next((str(each["claimName"]) for each in claims if "claimName" in each), "")
