"""The reference page of the engines' settings: each field with its flags, and the flags without a field."""

from collections.abc import Iterable, Iterator, Mapping

from penstock.core.runtimes import penstock, vllm
from penstock.core.runtimes.runtime import EXTRA_ARGS, Runtime
from penstock.core.spec.fields import REVISION_FIELDS

# Fields outside of spec.engine, and what they become in the containers of the two runtimes.
OTHER_FIELDS = (
    ("spec.model.uri", "the argument after `serve`", "the argument after `serve`"),
    ("spec.model.name", "`--served-model-name`", "`--served-model-name`"),
    (
        "spec.resources",
        "`--device`, `--tensor-parallel-size`, variables of the memory and CPU limit",
        "`--tensor-parallel-size`",
    ),
    ("spec.terminationGracePeriodSeconds", "`--shutdown-timeout`", "`--shutdown-timeout`"),
    (
        "spec.tracing",
        "`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`",
        "`--otlp-traces-endpoint`, `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`",
    ),
)

# Flags of penstock-engine that have no field, what they do, and why extraArgs is enough.
EXTRA_FLAGS: Mapping[str, str] = {
    "--allow-credentials": "Browsers reach the gateway, not engines.",
    "--allowed-headers": "Browsers reach the gateway, not engines.",
    "--allowed-methods": "Browsers reach the gateway, not engines.",
    "--allowed-origins": "Browsers reach the gateway, not engines.",
    "--async-scheduling": "For a comparison of schedulers; on a GPU only.",
    "--chat-template-content-format": "The engine sees it in the template.",
    "--default-chat-template-kwargs": "Variables that only some templates have.",
    "--enable-force-include-usage": "Clients ask for the usage of a stream themselves.",
    "--enable-log-requests": "Lines of the log change no answer.",
    "--enable-request-id-headers": "The gateway returns the header as well.",
    "--enable-responses-store": "A stored response is in one engine: gateways would ask others for it.",
    "--enable-sleep-mode": "Replicas are scaled instead.",
    "--enable-tokenizer-info-endpoint": "For people who look at one engine.",
    "--enforce-eager": "For a comparison with CUDA graphs; on a GPU only.",
    "--exclude-tools-when-tool-choice-none": "A matter of few clients.",
    "--log-format": "Pods write JSON, which is the default without a terminal.",
    "--log-level": "Lines of the log change no answer.",
    "--lora-modules": "Adapters are loaded by requests; this loads one at the start.",
    "--max-logprobs": "A bound for few clients.",
    "--max-n-sequences": "A bound for few clients.",
    "--return-tokens-as-token-ids": "Requests may ask for it.",
    "--tokenizer": "The model's folder has its tokenizer.",
    "--uvicorn-log-level": "Lines of the log change no answer.",
}


def page() -> str:
    """The page, in Markdown."""
    lines = [
        "# Settings of the engines",
        "",
        "Generated from `operator/penstock/core/runtimes` by `penstock docs`; do not edit.",
        "",
        "The fields of an InferenceService that become arguments of an engine, with the flags of the "
        "runtimes Penstock (`penstock-engine serve`) and VLLM (`vllm serve`). A field that is not set "
        "passes no flag, so the engine's default applies. A field without a flag is refused for that "
        "runtime: condition SpecValid is False, with reason UnsupportedByRuntime.",
        "",
        "| field | Penstock | VLLM |",
        "| --- | --- | --- |",
    ]
    lines += [f"| `{field}` | {own} | {others} |" for field, own, others in OTHER_FIELDS]
    lines += _field_rows()
    lines += [
        "",
        f"Other flags can be arguments in `spec.{EXTRA_ARGS}`. One that has a field is refused there, with "
        "the name of the field.",
        "",
        "## Flags of penstock-engine without a field",
        "",
        "These work in `spec.engine.extraArgs`.",
        "",
        "| flag | why it has no field |",
        "| --- | --- |",
        *_rows(EXTRA_FLAGS.items()),
        "",
        "## Flags that Penstock decides on",
        "",
        "These are refused in `spec.engine.extraArgs`.",
        "",
        "| flag | why |",
        "| --- | --- |",
        *_rows(penstock.RUNTIME.own_flags.items()),
    ]
    return "\n".join(lines) + "\n"


def _field_rows() -> Iterator[str]:
    flags = [flags_by_path(runtime) for runtime in (penstock.RUNTIME, vllm.RUNTIME)]
    for field in REVISION_FIELDS:
        if field.path.startswith("engine.") and field.path != EXTRA_ARGS:
            cells = [", ".join(f"`{flag}`" for flag in each.get(field.path, ())) for each in flags]
            yield f"| `spec.{field.path}` | " + " | ".join(cell or "none" for cell in cells) + " |"


def flags_by_path(runtime: Runtime) -> dict[str, tuple[str, ...]]:
    """The flags of each setting."""
    return {path: each.flags for each in runtime.arguments for path in each.paths}


def _rows(table: Iterable[tuple[str, str]]) -> Iterator[str]:
    for flag, why in sorted(table):
        first, _, rest = why.partition(" ")
        first = f"`{first}`" if first.startswith("spec.") else first.capitalize()
        yield f"| `{flag}` | {first} {rest.rstrip('.')}. |"
