"""Runtime Penstock: `penstock-engine serve`."""

from penstock.core.runtimes.devices import device_flags
from penstock.core.runtimes.paths import ADAPTERS_MOUNT, MODEL_MOUNT, mounted_path
from penstock.core.runtimes.pod_models import TERMINATION_LOG, headers_args
from penstock.core.runtimes.runtime import Runtime, option, serve_command
from penstock.core.runtimes.shared_arguments import RESERVED_FLAGS, SHARED, parser, speculation
from penstock.core.spec.service import TERMINATION_OVERHEAD_S, Object, ServiceSpec
from penstock.core.spec.settings import CUSTOM, PENSTOCK

ARGUMENTS = (
    *SHARED,
    option(
        "engine.quantization.method",
        "--quantization",
        values=("int8", "int4"),
        advice="a checkpoint that is quantized already (AWQ, GPTQ, FP8, compressed-tensors) needs no setting",
    ),
    option("engine.kvCache.dtype", "--kv-cache-dtype", values=("auto", "int8", "fp8", "fp8_e4m3")),
    speculation("ngram", "suffix", "draft_model", "eagle"),
    parser(
        "engine.parsers.toolCall",
        "--tool-call-parser",
        "--enable-auto-tool-choice",
        values=("hermes", "llama3_json", "mistral"),
    ),
    parser("engine.parsers.reasoning", "--reasoning-parser", values=("qwen3", "deepseek_r1")),
    option("engine.scheduling.requestTimeout", "--request-timeout", text="{:g}".format),
)

PREFLIGHT_FLAGS = (
    "--accelerator-memory-bytes", "--credentials", "--deadline-seconds", "--headers", "--memory-limit-bytes",
    "--scope", "--termination-log",
)  # fmt: skip


def fixed_args(spec: ServiceSpec) -> list[str]:
    """Arguments that depend on neither settings nor devices."""
    args = [
        *serve_command(spec),
        f"--shutdown-timeout={spec.termination_grace_s - TERMINATION_OVERHEAD_S}",
    ]
    if "engine.lora.maxAdapters" in spec.settings:
        args.append(f"--lora-dir={ADAPTERS_MOUNT}")
    return args


def preflight_args(spec: ServiceSpec) -> list[str]:
    """Arguments of the preflight.

    For runtime Penstock it checks that the model fits the settings and the memory; for the others, only that
    its files are there. extraArgs come last, so that one without its value cannot take the next argument.
    """
    args = ["preflight", mounted_path(spec.model_uri, MODEL_MOUNT)]
    args += ["--termination-log", TERMINATION_LOG, *headers_args(spec)]
    kind = spec.settings.get("runtime.type", PENSTOCK)
    if kind != PENSTOCK:
        return [*args, f"--scope={'folder' if kind == CUSTOM else 'files'}"]
    return [*args, *device_flags(spec), *RUNTIME.setting_args(spec.settings)]


def environment(spec: ServiceSpec) -> list[Object]:
    """The pod's memory and CPU limits, from which the engine derives its sizes."""
    return [
        {"name": "PENSTOCK_MEMORY_LIMIT_BYTES", "value": str(spec.resources.memory_bytes)},
        {"name": "PENSTOCK_CPU_LIMIT", "value": str(spec.resources.threads)},
    ]


RUNTIME = Runtime(
    name=PENSTOCK,
    command=("penstock-engine",),
    arguments=ARGUMENTS,
    reserved_flags=RESERVED_FLAGS
    | dict.fromkeys(PREFLIGHT_FLAGS, "only the preflight has this flag")
    | {
        "--device": "spec.resources sets it",
        "--lora-dir": f"spec.engine.lora sets it to {ADAPTERS_MOUNT}, where its sources are mounted",
        "--otlp-traces-endpoint": "spec.tracing.exporterEndpoint sets it",
    },
    fixed_args=fixed_args,
    environment=environment,
    readiness_path="/ready",
    liveness_path="/health",
    device_flags=device_flags,
)
