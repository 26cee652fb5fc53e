"""The reference page of engine flags: those of each field, and those without a field."""

import re
from collections.abc import Iterable, Iterator, Mapping

from penstock.core.runtimes import penstock, vllm
from penstock.core.runtimes.runtime import Runtime

# Fields outside of spec.engine, and what sets them in containers of the runtimes Penstock and VLLM.
FIELDS_OUTSIDE_ENGINE = (
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

# Flags of penstock-engine without a field, each with the reason.
EXTRA_FLAGS: Mapping[str, str] = {
    "--allow-credentials": "Browsers connect to the gateway, not to engines.",
    "--allowed-headers": "Browsers connect to the gateway, not to engines.",
    "--allowed-methods": "Browsers connect to the gateway, not to engines.",
    "--allowed-origins": "Browsers connect to the gateway, not to engines.",
    "--async-scheduling": "For comparing schedulers, on GPUs only.",
    "--chat-template-content-format": "The engine detects it from the template.",
    "--default-chat-template-kwargs": "Only some templates have variables.",
    "--enable-force-include-usage": "Requests can ask for it with `stream_options.include_usage`.",
    "--enable-log-requests": "Logging does not affect answers.",
    "--enable-per-request-metrics": "The gateway measures the times of all requests.",
    "--enable-request-id-headers": "The gateway returns the header anyway.",
    "--enable-responses-store": "Stored responses are in one engine; the next request may go to another.",
    "--enable-sleep-mode": "The operator scales the number of engines instead.",
    "--enable-tokenizer-info-endpoint": "For debugging a single engine.",
    "--enforce-eager": "For comparing with CUDA graphs, on GPUs only.",
    "--exclude-tools-when-tool-choice-none": "Few clients need it.",
    "--log-format": "JSON, the default without a terminal, suits pods.",
    "--log-level": "Logging does not affect answers.",
    "--lora-modules": "Requests load adapters; this flag loads some at the start.",
    "--max-logprobs": "Few clients come near this limit.",
    "--max-n-sequences": "Few clients come near this limit.",
    "--return-tokens-as-token-ids": "Requests can ask for it.",
    "--tokenizer": "The tokenizer is in the model's folder.",
    "--uvicorn-log-level": "Logging does not affect answers.",
}


def page(settings: Iterable[str]) -> str:
    """The page, in Markdown. settings: paths of all settings, in the order of the page."""
    return "\n".join([*_field_section(settings), *_flag_sections()]) + "\n"


def _field_section(settings: Iterable[str]) -> Iterator[str]:
    """The fields, and their flags."""
    yield from (
        "# Engine flags",
        "",
        "Generated from `operator/penstock/core/runtimes` by `penstock docs`; do not edit.",
        "",
        "The fields of an InferenceService that become arguments of an engine, with the flags of the "
        "runtimes Penstock (`penstock-engine serve`) and VLLM (`vllm serve`). A field that is not set "
        "becomes no argument, so the engine's default applies. A field that a runtime has no flag for is "
        "refused: condition SpecValid is False, with reason UnsupportedByRuntime.",
        "",
        "| field | Penstock | VLLM |",
        "| --- | --- | --- |",
        *(f"| `{path}` | {own} | {of_vllm} |" for path, own, of_vllm in FIELDS_OUTSIDE_ENGINE),
        *_field_rows(settings),
    )


def _flag_sections() -> Iterator[str]:
    """The flags without a field, and those that are reserved."""
    yield from (
        "",
        "Flags without a field can be arguments in `spec.engine.extraArgs`. A flag that has a field is "
        "refused there; the message names the field.",
        "",
        "## Flags of penstock-engine without a field",
        "",
        "These work in `spec.engine.extraArgs`.",
        "",
        "| flag | why it has no field |",
        "| --- | --- |",
        *_rows(EXTRA_FLAGS.items()),
        "",
        "## Reserved flags",
        "",
        "Penstock sets these flags itself, or a service's engine would not work with them. They are "
        "refused in `spec.engine.extraArgs`.",
        "",
        "| flag | why |",
        "| --- | --- |",
        *_rows(penstock.RUNTIME.reserved_flags.items()),
    )


def _field_rows(settings: Iterable[str]) -> Iterator[str]:
    flags = [flags_by_path(runtime) for runtime in (penstock.RUNTIME, vllm.RUNTIME)]
    for path in settings:
        if path.startswith("engine.") and path != "engine.extraArgs":
            cells = " | ".join(_cell(each.get(path)) for each in flags)
            yield f"| `spec.{path}` | {cells} |"


def _cell(flags: tuple[str, ...] | None) -> str:
    """flags: of a field; empty: it only mounts volumes; None: the runtime does not support it."""
    if flags is None:
        return "none"
    return ", ".join(f"`{flag}`" for flag in flags) or "a mount"


def flags_by_path(runtime: Runtime) -> dict[str, tuple[str, ...]]:
    """The flags of each setting."""
    return {path: each.flags for each in runtime.arguments for path in each.paths}


def _rows(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a row for each flag: its reason as a sentence, with fields as code."""
    for flag, reason in sorted(reasons):
        text = re.sub(r"spec(\.\w+)+", r"`\g<0>`", reason.rstrip("."))
        yield f"| `{flag}` | {text[0].upper()}{text[1:]}. |"
