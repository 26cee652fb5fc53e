"""The table of runtimes, by the type in spec.runtime."""

from penstock.core.runtimes import custom, penstock, vllm
from penstock.core.runtimes.runtime import Runtime
from penstock.core.spec.settings import CUSTOM, PENSTOCK, VLLM, Settings


def runtime_of(settings: Settings) -> Runtime:
    """The runtime that a service's settings name; Penstock by default."""
    name = settings.get("runtime.type", PENSTOCK)
    if name == VLLM:
        return vllm.runtime(settings)
    return custom.runtime(settings) if name == CUSTOM else penstock.RUNTIME
