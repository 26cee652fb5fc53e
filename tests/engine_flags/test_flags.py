"""Every flag of penstock-engine: the field that sets it and its effect, or the reason why it has no field."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from tests.engine_flags import effects, queue_effects
from tests.engine_flags.conftest import Places
from tests.engine_flags.service_engine import Engine, preflight, running_engine

from penstock.core.runtimes.flag_fields import FIELDS
from penstock.core.runtimes.page import EXTRA_FLAGS
from penstock.core.runtimes.penstock import PREFLIGHT_FLAGS, RUNTIME
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.serve_options import ServeOptions

MODEL = "MODEL"  # the argument that is no flag
# Their effect needs a GPU, or is on the address at which the test reaches the engine.
WITHOUT_TEST = {"--async-scheduling", "--enforce-eager", "--host", "--port"}

Check = Callable[[Engine], None]


@dataclass(frozen=True)
class Case:
    """An engine with several settings. spec: fields. checks: of the effect of each flag."""

    spec: Callable[[Places], dict[str, Any]]
    checks: dict[str, Check]


CASES = {
    "sizes": Case(
        lambda _: {
            "engine": {
                "maxModelLen": 512, "maxNumSeqs": 3, "maxNumBatchedTokens": 64, "seed": 7,
                "dtype": "float32", "memoryUtilizationPercent": 50, "quantization": {"method": "int8"},
                "kvCache": {
                    "memory": "64Mi", "dtype": "int8", "blockSize": 32, "prefixCaching": {"mode": "Disabled"},
                },
                "extraArgs": ["--max-logprobs", "3", "--max_n_sequences=2", "--tokenizer=/models"],
            },
        },
        {
            "--seed": effects.seeds_follow_the_seed,
            MODEL: effects.model_is_served,
            "--served-model-name": effects.model_is_served,
            "--device": effects.logs("kettle on cpu in"),
            "--max-model-len": effects.context_is_512,
            "--max-num-seqs": effects.logs("at most 3 sequences and"),
            "--max-num-batched-tokens": effects.logs("and 64 tokens in a step"),
            "--dtype": effects.logs("in float32"),
            "--gpu-memory-utilization": effects.has_cache_config(gpu_memory_utilization="0.5"),
            "--quantization": effects.weights_are_in_8_bits,
            "--kv-cache-memory-bytes": effects.cache_has_64_mib,
            "--kv-cache-dtype": effects.has_cache_config(cache_dtype="int8"),
            "--block-size": effects.has_cache_config(block_size="32"),
            "--enable-prefix-caching": effects.nothing_is_reused,
            "--enable-prompt-tokens-details": effects.nothing_is_reused,
            "--max-logprobs": effects.logprobs_are_bounded,
            "--max-n-sequences": effects.choices_are_bounded,
            "--tokenizer": effects.template_is_the_models,
        },
    ),
    "queue": Case(
        lambda _: {
            "terminationGracePeriodSeconds": 16,
            "engine": {
                "maxNumSeqs": 1, "maxModelLen": 1024,
                "scheduling": {"policy": "Priority", "maxQueuedRequests": 3, "maxQueuedTokens": 120},
                "parsers": {"toolCall": "hermes"},
            },
        },
        {
            "--tool-call-parser": effects.calls_are_parsed,
            "--enable-auto-tool-choice": effects.calls_are_parsed,
            "--scheduling-policy": queue_effects.low_priorities_wait,
            "--max-num-queued-reqs": queue_effects.long_queues_are_rejected,
            "--max-num-queued-tokens": queue_effects.long_prompts_in_the_queue_are_rejected,
            "--shutdown-timeout": queue_effects.drain_ends_in_time,
        },
    ),
    "texts": Case(
        lambda _: {
            "engine": {
                "maxModelLen": 1024,
                "parsers": {
                    "reasoning": "qwen3",
                    "chatTemplate": {"configMapKeyRef": {"name": "templates", "key": "shout"}},
                },
                "generation": {"source": "None", "defaults": {"maxTokens": effects.MAX_TOKENS}},
                "extraArgs": [
                    "--exclude-tools-when-tool-choice-none", "--enable-tokenizer-info-endpoint",
                    "--chat-template-content-format=openai", "--default-chat-template-kwargs",
                    '{"tone": "warm"}', "--no-enable-request-id-headers", "--return-tokens-as-token-ids",
                    "--enable-force-include-usage", "--enable-sleep-mode", "--enable-responses-store",
                    "--enable-per-request-metrics",
                    '--allowed-origins=["http://page"]', '--allowed-methods=["POST"]',
                    '--allowed-headers=["x-mine"]', "--allow-credentials",
                ],
            },
        },
        {
            "--reasoning-parser": effects.reasoning_is_separate,
            "--chat-template": effects.template_is_used,
            "--generation-config": effects.models_defaults_are_unused,
            "--override-generation-config": effects.answers_are_capped,
            "--exclude-tools-when-tool-choice-none": effects.tools_are_hidden,
            "--enable-tokenizer-info-endpoint": effects.template_is_shown,
            "--chat-template-content-format": effects.content_is_parts,
            "--default-chat-template-kwargs": effects.template_has_variables,
            "--enable-request-id-headers": effects.request_ids_are_absent,
            "--return-tokens-as-token-ids": effects.tokens_are_ids,
            "--enable-force-include-usage": effects.streams_have_usage,
            "--enable-per-request-metrics": effects.answers_have_times,
            "--enable-sleep-mode": effects.engine_can_sleep,
            "--enable-responses-store": effects.responses_are_stored,
            "--allowed-origins": effects.pages_may_ask,
            "--allowed-methods": effects.pages_may_ask,
            "--allowed-headers": effects.pages_may_ask,
            "--allow-credentials": effects.pages_may_ask,
        },
    ),
    "adapters": Case(
        lambda _: {
            "engine": {
                "maxModelLen": 512, "lora": {"maxAdapters": 1, "maxRank": 8, "maxCPUAdapters": 2},
                "extraArgs": [
                    "--lora-modules", "law=/models/law", "--log-format=text", "--log-level=debug",
                    "--uvicorn-log-level=info", "--disable-log-requests",
                ],
            },
        },
        {
            "--lora-modules": effects.adapters_are_loaded,
            **dict.fromkeys(
                ("--enable-lora", "--max-loras", "--max-lora-rank", "--max-cpu-loras", "--lora-dir"),
                effects.adapters_are_loaded,
            ),
            "--enable-log-requests": effects.requests_are_not_logged,
            "--log-format": effects.log_is_text,
            "--log-level": effects.logs("DEBUG"),
            "--uvicorn-log-level": effects.logs("Uvicorn running on"),
        },
    ),
    "drafts": Case(
        lambda places: {
            "engine": {
                "maxModelLen": 512, "kvCache": {
                    "memory": "4Mi", "offload": {"cpu": {"memory": "64Mi"}}, "events": {"mode": "Enabled"},
                },
                "speculative": {
                    "method": "draft_model", "numSpeculativeTokens": 3,
                    "model": {"uri": f"file://{places.model}"},
                },
            },
            "tracing": {"exporterEndpoint": places.span_sink.base_url},
        },
        {
            "--speculative-config": effects.drafts_are_accepted,
            "--kv-events-config": effects.block_events_are_published,
            "--kv-offloading-size": effects.evicted_blocks_are_saved,
            "--otlp-traces-endpoint": effects.answers_are_traced,
        },
    ),
    "experts": Case(
        lambda places: {
            "model": {"uri": f"file://{places.experts}"},
            "engine": {
                "parallelism": {"tensor": 2, "expert": {"mode": "Enabled"}},
                "extraArgs": ["--no-async-scheduling", "--enforce-eager"],
            },
        },
        {
            "--tensor-parallel-size": effects.worker_processes(2),
            "--enable-expert-parallel": effects.logs("tensor 2 x pipeline 1 ranks, whole experts"),
        },
    ),
    "stages": Case(
        lambda _: {
            "engine": {
                "parallelism": {"pipeline": 2}, "maxModelLen": 512,
                "scheduling": {"requestTimeout": "2s"},
            },
        },
        {
            "--pipeline-parallel-size": effects.worker_processes(2),
            "--request-timeout": queue_effects.long_requests_end,
        },
    ),
}  # fmt: skip


def flags_of(kind: type) -> Iterator[str]:
    """The flags of a dataclass with the engine's options."""
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        (option, *_) = getattr(hints[field.name], "__metadata__", (None,))
        named = getattr(option, "default", None)  # Option("--name") in an annotation
        flag = named if isinstance(named, str) else f"--{field.name.replace('_', '-')}"
        yield MODEL if field.name == "model_dir" else flag


FLAGS = {*flags_of(EngineConfig), *flags_of(ServeOptions)}


def test_every_flag_has_a_field_or_a_reason() -> None:
    with_field = {flag for each in RUNTIME.arguments for flag in each.flags}
    opposites = {flag for flag in with_field if flag.startswith("--no-")}
    # Other ways to write a command line, and what is refused although `serve` has no such flag.
    aliases = {"--config", "--model", "--help", *PREFLIGHT_FLAGS}
    reserved = set(RUNTIME.reserved_flags) - aliases
    assert with_field - opposites | set(EXTRA_FLAGS) | reserved == FLAGS - {MODEL}
    assert with_field.isdisjoint(EXTRA_FLAGS)
    assert with_field.isdisjoint(RUNTIME.reserved_flags)
    assert set(EXTRA_FLAGS).isdisjoint(RUNTIME.reserved_flags)


def test_messages_name_the_field_of_every_flag() -> None:
    for argument in RUNTIME.arguments:
        for flag in argument.flags:
            assert all(f"spec.{path}".startswith(FIELDS[flag]) for path in argument.paths)


def test_every_flag_that_a_spec_can_set_is_tested() -> None:
    tested = {flag for case in CASES.values() for flag in case.checks}
    refused = set(RUNTIME.reserved_flags) - tested
    aside = {flag for each in RUNTIME.arguments for flag in each.flags[1:]} - tested
    assert tested | refused | aside | WITHOUT_TEST >= FLAGS
    assert refused.isdisjoint(EXTRA_FLAGS)


@pytest.mark.parametrize("name", CASES)
def test_a_running_engine_shows_the_effect_of_each_flag(
    name: str, places: Places, tmp_path: Path
) -> None:
    case = CASES[name]
    flags: dict[Check, list[str]] = {}
    for flag, check in case.checks.items():
        flags.setdefault(check, []).append(flag)
    with running_engine(
        places.model, case.spec(places), tmp_path / "log", places.config_maps
    ) as engine:
        engine.span_sink = places.span_sink
        for check, checked in flags.items():
            try:
                check(engine)
            except AssertionError as error:
                raise AssertionError(f"{', '.join(checked)}: {error}") from error


@pytest.mark.parametrize("name", CASES)
def test_the_preflight_takes_the_arguments_of_the_engine(name: str, places: Places) -> None:
    verdict = preflight(places.model, CASES[name].spec(places), places.config_maps)
    assert verdict["ok"], verdict
