"""Runtime VLLM: `vllm serve`.

LoRA adapters of vLLM 0.32, as its source says (VLLM_ALLOW_RUNTIME_LORA_UPDATING adds the routes):

    POST /v1/load_lora_adapter {lora_name, lora_path, load_inplace}: 200 and a text once the adapter is in
      memory. 400 if the name is registered, also with the same path; 404 if the files are not there; 500
      with the exception's text for an adapter that it refuses, such as one of too large a rank. The engine
      computes no step meanwhile.
    POST /v1/unload_lora_adapter {lora_name}: 200, or 404 for another name. Only the name goes: the weights
      stay in memory until they are the least recently used ones.
    GET /v1/models: an entry with `parent` and `root` (the path) for each registered name, evicted or not.

An adapter whose weights vLLM's user may not read gets the same 404 as one that is not there.

Beyond --max-cpu-loras (default: --max-loras), a load evicts the least recently used adapter, which keeps
its name. The next request for that one reads its files within a step: if they are broken or gone by then,
the engine ends. The operator registers no more names than there are places, but an unloaded adapter that
was used last stays in memory in place of an idle one that is registered. So the files of registered
adapters must not change. A lora_path may be anywhere, and adapter_model.bin is unpickled, though
only tensors of it. Names may have any characters, such as "@".
"""

from dataclasses import replace

from penstock.core.runtimes.devices import rank_flags
from penstock.core.runtimes.loaded_code import CODE_FLAGS, refused_code
from penstock.core.runtimes.runtime import Runtime, option, serve_command
from penstock.core.runtimes.shared_arguments import (
    HTTP_ONLY,
    RESERVED_FLAGS,
    SHARED,
    parser,
    speculation,
)
from penstock.core.spec.service import TERMINATION_OVERHEAD_S, Object, ServiceSpec
from penstock.core.spec.settings import VLLM, Settings

IMAGE = "vllm/vllm-openai:v0.32.0"

RANK_ARGUMENT = option(
    "engine.lora.maxRank", "--max-lora-rank", values=(1, 8, 16, 32, 64, 128, 256, 320, 512)
)

ARGUMENTS = (
    *(RANK_ARGUMENT if argument.paths == RANK_ARGUMENT.paths else argument for argument in SHARED),
    option("engine.quantization.method", "--quantization"),
    option("engine.kvCache.dtype", "--kv-cache-dtype"),
    speculation(),
    parser("engine.parsers.toolCall", "--tool-call-parser", "--enable-auto-tool-choice"),
    parser("engine.parsers.reasoning", "--reasoning-parser"),
    option(
        "tracing.exporterEndpoint",
        "--otlp-traces-endpoint",
        text=lambda url: f"{url.rstrip('/')}/v1/traces",
    ),
)

# Time for vLLM's processes to exit after the last request, in addition to the 10 s in TERMINATION_OVERHEAD_S:
# they took 13 s on a busy machine.
EXIT_S = 10

VARIABLES = {
    "HF_HUB_OFFLINE": "1",  # the model is a mounted folder
    "VLLM_NO_USAGE_STATS": "1",
    # The root file system is read-only, and the pod's user has no entry in the image: vLLM writes caches to
    # the home, and torch reads the user's name.
    "HOME": "/tmp",  # noqa: S108 - the pod's own
    "USER": "vllm",
}


def fixed_args(spec: ServiceSpec) -> list[str]:
    """Arguments that depend on neither settings nor devices.

    Without --shutdown-timeout, vLLM aborts running requests on SIGTERM.
    """
    timeout_s = max(1, spec.termination_grace_s - TERMINATION_OVERHEAD_S - EXIT_S)
    return [
        *serve_command(spec),
        f"--shutdown-timeout={timeout_s}",
        # A busy vLLM sends several tokens in one event: without `usage`, gateways could not count them.
        "--enable-force-include-usage",
    ]


def environment(spec: ServiceSpec) -> list[Object]:
    """Variables of vLLM for settings that have no flag."""
    variables = dict(VARIABLES)
    if spec.resources.device == "cpu":
        # Otherwise all vLLM pods of a node bind their threads to the same cores.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        variables["OMP_NUM_THREADS"] = str(spec.resources.threads)
    if "engine.lora.maxAdapters" in spec.settings:
        variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
    if "tracing.exporterEndpoint" in spec.settings:
        variables["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"  # its default is gRPC
    return [{"name": name, "value": value} for name, value in variables.items()]


RUNTIME = Runtime(
    name=VLLM,
    image=IMAGE,
    command=("vllm",),
    arguments=ARGUMENTS,
    reserved_flags=RESERVED_FLAGS
    | CODE_FLAGS
    | {
        "--data-parallel-size": "an engine is one replica: raise spec.scaling.maxReplicas instead",
        "--device-memory-utilization": "set spec.engine.memoryUtilizationPercent instead",
        "--disable-log-stats": "services are scaled by the metrics of their engines",
        "--enable-force-include-usage": "it is always set, because gateways count the tokens of streams",
        "--grpc": HTTP_ONLY,
        "--headless": HTTP_ONLY,
        "--spec-method": "set spec.engine.speculative.method instead",
        "--spec-model": "set spec.engine.speculative.model.uri instead",
        "--spec-tokens": "set spec.engine.speculative.numSpeculativeTokens instead",
    },
    fixed_args=fixed_args,
    environment=environment,
    device_variables=("VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS"),  # on the CPU
    readiness_path="/health",
    liveness_path="/health",
    startup_s=1800,
    refused_args=refused_code,
    has_abbreviations=True,  # argparse accepts them
    device_flags=rank_flags,
)


def runtime(settings: Settings) -> Runtime:
    """The runtime with the service's image."""
    return replace(RUNTIME, image=settings.get("runtime.vllm.image", IMAGE))
