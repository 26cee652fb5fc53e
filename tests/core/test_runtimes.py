"""Tables of runtimes: each setting's arguments, and the settings that a runtime refuses."""

from dataclasses import replace
from typing import Any

import pytest
from service_spec import SMALL, pod_resources

from penstock.core.runtimes.refusals import refused_settings
from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.fields import REVISION_FIELDS

CUSTOM = {"runtime.type": "Custom", "runtime.custom.image": "server"}


def args(settings: dict[str, Any]) -> list[str]:
    """Arguments of an engine besides those that one without settings has."""
    plain = runtime_of(settings).serve_args(replace(SMALL, settings={}))
    return [
        arg
        for arg in runtime_of(settings).serve_args(replace(SMALL, settings=settings))
        if arg not in plain
    ]


def refusals(settings: dict[str, Any], **changes: Any) -> list[str]:
    return list(refused_settings(replace(SMALL, settings=settings, **changes)))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"engine.maxModelLen": 4096}, ["--max-model-len=4096"]),
        ({"engine.memoryUtilizationPercent": 55}, ["--gpu-memory-utilization=0.55"]),
        ({"engine.kvCache.prefixCaching.mode": False}, ["--no-enable-prefix-caching"]),
        ({"engine.kvCache.offload.cpu.memory": 3 << 29}, ["--kv-offloading-size=1.5"]),
        ({"engine.scheduling.policy": "Priority"}, ["--scheduling-policy=priority"]),
        ({"engine.generation.source": "None"}, ["--generation-config=vllm"]),
        (
            {"engine.generation.defaults.topP": 0.5, "engine.generation.defaults.maxTokens": 9},
            ['--override-generation-config={"top_p": 0.5, "max_new_tokens": 9}'],
        ),
        (
            {
                "engine.speculative.method": "draft_model",
                "engine.speculative.numSpeculativeTokens": 2,
                "engine.speculative.model.uri": "pvc://drafts/small",
            },
            [
                '--speculative-config={"method": "draft_model", "num_speculative_tokens": 2, '
                '"model": "/draft/small"}'
            ],
        ),
        ({"engine.lora.maxAdapters": 3}, ["--lora-dir=/models", "--enable-lora", "--max-loras=3"]),
        (
            {"engine.parsers.toolCall": "hermes"},
            ["--enable-auto-tool-choice", "--tool-call-parser=hermes"],
        ),
        ({"engine.extraArgs": ("--max-logprobs", "5")}, ["--max-logprobs", "5"]),
    ],
)
def test_arguments_of_settings(settings: dict[str, Any], expected: list[str]) -> None:
    assert args(settings) == expected
    assert refusals(settings) == []


def test_every_setting_has_an_argument_of_penstocks_engine() -> None:
    taken = {path for each in runtime_of({}).arguments for path in each.paths}
    assert taken == {
        field.path
        for field in REVISION_FIELDS
        if field.path.startswith("engine.") and field.path != "engine.extraArgs"
    }


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"engine.quantization.method": "awq"}, "spec.engine.quantization.method"),
        ({"engine.kvCache.dtype": "fp8_e5m2"}, "spec.engine.kvCache.dtype"),
        ({"engine.extraArgs": ("--max_num_seqs=3",)}, "spec.engine.maxNumSeqs"),
        ({"engine.extraArgs": ("-tp", "2")}, "spec.engine.parallelism.tensor"),
        ({"engine.extraArgs": ("--no-enable-prefix-caching",)}, "spec.engine.kvCache"),
        ({"engine.extraArgs": ("--port=1",)}, "Penstock sets --port itself"),
        ({**CUSTOM, "engine.maxNumSeqs": 3}, "spec.engine.maxNumSeqs"),
        ({**CUSTOM, "engine.extraArgs": ("--x",)}, "spec.engine.extraArgs"),
    ],
)
def test_a_setting_without_effect_is_refused_by_its_name(
    settings: dict[str, Any], field: str
) -> None:
    (sentence,) = refusals(settings)
    assert field in sentence


@pytest.mark.parametrize(
    ("settings", "accelerators", "is_refused"),
    [
        ({}, 4, False),
        ({"engine.parallelism.tensor": 4}, 4, False),
        ({"engine.parallelism.tensor": 2, "engine.parallelism.pipeline": 2}, 4, False),
        ({"engine.parallelism.tensor": 2}, 4, True),
        ({"engine.parallelism.pipeline": 3}, 4, True),
    ],
)
def test_every_accelerator_has_a_rank(
    settings: dict[str, Any], accelerators: int, is_refused: bool
) -> None:
    resources = pod_resources(accelerator=("nvidia.com/gpu", accelerators))
    assert bool(refusals(settings, resources=resources)) == is_refused


def test_a_server_of_the_user_gets_its_own_command() -> None:
    runtime = runtime_of({**CUSTOM, "runtime.custom.args": ("--port=$(PORT)",)})
    assert (runtime.image, runtime.command) == ("server", ())
    assert runtime.serve_args(SMALL) == ["--port=$(PORT)"]
