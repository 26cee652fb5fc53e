"""Runtime VLLM: `vllm serve`."""

from dataclasses import replace

from penstock.core.runtimes.devices import rank_flags
from penstock.core.runtimes.penstock import (
    ADDRESS_FLAGS,
    LORA,
    SHARED,
    SPECULATION_FIELDS,
    parser_args,
    speculation_args,
)
from penstock.core.runtimes.runtime import Argument, Runtime, option, serve_command
from penstock.core.spec.service import Object, ServiceSpec
from penstock.core.spec.settings import DRAFT_MODEL, KV_MEMORY, VLLM, Settings

IMAGE = "vllm/vllm-openai:v0.32.0"

ARGUMENTS = (
    *SHARED,
    option("engine.quantization.method", "--quantization"),
    option("engine.kvCache.dtype", "--kv-cache-dtype"),
    Argument((*SPECULATION_FIELDS, DRAFT_MODEL), ("--speculative-config",), speculation_args),
    *LORA,
    parser_args("engine.parsers.toolCall", "--tool-call-parser", "--enable-auto-tool-choice"),
    parser_args("engine.parsers.reasoning", "--reasoning-parser"),
)


def environment(spec: ServiceSpec) -> list[Object]:
    """Variables for what vLLM has no flag for."""
    made: list[Object] = []
    if KV_MEMORY in spec.settings and spec.resources.device == "cpu":
        gib = spec.settings[KV_MEMORY] / 2**30
        made.append({"name": "VLLM_CPU_KVCACHE_SPACE", "value": f"{gib:g}"})
    if "engine.lora.maxAdapters" in spec.settings:
        made.append({"name": "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "value": "True"})
    return made


RUNTIME = Runtime(
    name=VLLM,
    image=IMAGE,
    command=("vllm",),
    arguments=ARGUMENTS,
    own_flags=ADDRESS_FLAGS | {"--enable-prompt-tokens-details"},
    fixed_args=serve_command,
    environment=environment,
    readiness_path="/health",
    liveness_path="/health",
    startup_s=1800,
    device_flags=rank_flags,
)


def runtime(settings: Settings) -> Runtime:
    """The runtime, in the image that the service names."""
    return replace(RUNTIME, image=settings.get("runtime.vllm.image", IMAGE))
