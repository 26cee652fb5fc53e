"""Tables of runtimes: each setting's arguments, and the settings that a runtime refuses."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.specs.service_spec import SMALL, pod_resources

from penstock.api.conversion.settings import SETTINGS
from penstock.core.runtimes.refusals import refused_settings
from penstock.core.runtimes.runtime import switch
from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.service import PRE_STOP_S, TERMINATION_OVERHEAD_S

VLLM = {"runtime.type": "VLLM"}
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
        (
            {"engine.kvCache.events.mode": True},
            [
                '--kv-events-config={"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": '
                '"tcp://*:5557", "replay_endpoint": "tcp://*:5558", "hwm": 10000}'
            ],
        ),
        ({"engine.kvCache.events.mode": False}, []),
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
        (
            {"engine.lora.maxAdapters": 3},
            ["--lora-dir=/adapters", "--enable-lora", "--max-loras=3"],
        ),
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


@pytest.mark.parametrize("value", ["Disabled", 0, None])
def test_a_switch_is_true_or_false(value: Any) -> None:
    path = "engine.kvCache.prefixCaching.mode"
    with pytest.raises(TypeError, match=f"{path} must be true or false, not {value!r}"):
        switch(path, "--enable-prefix-caching").write({path: value})


def test_kubernetes_replaces_no_variable_in_the_path_of_a_model() -> None:
    spec = replace(SMALL, model_uri="pvc://m/$(POD_IP)")
    assert runtime_of({}).serve_args(spec)[1] == "/models/$$(POD_IP)"


def test_vllm_sends_spans_by_http() -> None:
    settings = {"runtime.type": "VLLM", "tracing.exporterEndpoint": "http://collector:4318/"}
    assert args(settings) == ["--otlp-traces-endpoint=http://collector:4318/v1/traces"]
    made = runtime_of(settings).environment(replace(SMALL, settings=settings))
    assert {"name": "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "value": "http/protobuf"} in made
    (sentence,) = refusals({**settings, "engine.extraArgs": ("--otlp-traces-endpoint=x",)})
    assert "set spec.tracing.exporterEndpoint" in sentence


def test_every_setting_has_an_argument_of_penstocks_engine() -> None:
    taken = {path for each in runtime_of({}).arguments for path in each.paths}
    assert taken == {path for path in SETTINGS if path.startswith("engine.")} - {"engine.extraArgs"}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"engine.quantization.method": "awq"}, "spec.engine.quantization.method"),
        ({"engine.kvCache.dtype": "fp8_e5m2"}, "spec.engine.kvCache.dtype"),
        ({"engine.extraArgs": ("--max_num_seqs=3",)}, "spec.engine.maxNumSeqs"),
        ({"engine.extraArgs": ("-tp", "2")}, "spec.engine.parallelism.tensor"),
        ({"engine.extraArgs": ("--no-enable-prefix-caching",)}, "spec.engine.kvCache"),
        ({"engine.extraArgs": ("--kv-events-config={}",)}, "spec.engine.kvCache.events.mode"),
        ({"engine.extraArgs": ("--no-enable-lora",)}, "spec.engine.lora.maxAdapters"),
        (
            {"engine.speculative.method": "mtp", "engine.speculative.numSpeculativeTokens": 2},
            "spec.engine.speculative.method",
        ),
        ({"engine.extraArgs": ("--port=1",)}, "at its pod's address"),
        ({**CUSTOM, "engine.maxNumSeqs": 3}, "spec.engine.maxNumSeqs"),
        ({**CUSTOM, "engine.extraArgs": ("--x",)}, "spec.engine.extraArgs"),
    ],
)
def test_a_setting_without_effect_is_refused_by_its_name(
    settings: dict[str, Any], field: str
) -> None:
    (sentence,) = refusals(settings)
    assert field in sentence


def test_the_method_of_a_quantized_checkpoint_needs_no_setting() -> None:
    (sentence,) = refusals({"engine.quantization.method": "awq"})
    assert "must be one of int4, int8 with runtime Penstock, not awq: a checkpoint" in sentence
    assert "(AWQ, GPTQ, FP8, compressed-tensors) needs no setting" in sentence


@pytest.mark.parametrize(
    "arg",
    ["--trust-remote-code", "--trust_remote", "--ap=secret", "--max-num-s", "--no-enable-prefix"],
)
def test_vllm_reads_the_first_letters_of_a_flag_as_the_flag(arg: str) -> None:
    settings = {"runtime.type": "VLLM", "engine.extraArgs": (arg,)}
    assert any(arg in sentence for sentence in refusals(settings))


@pytest.mark.parametrize(
    ("arg", "field"),
    [
        ("--speculative-config.method=ngram", "spec.engine.speculative.method"),
        ("--speculative_config.method", "spec.engine.speculative.method"),
        ("-sc.method=ngram", "spec.engine.speculative.method"),
        ("--spec-method=ngram", "spec.engine.speculative.method"),
        ("--override-generation-config.top_p=1", "spec.engine.generation.defaults"),
        ("--device-memory-utilization=1", "spec.engine.memoryUtilizationPercent"),
        ("-qawq", "spec.engine.quantization.method"),
        ("-t", "spec.engine.parallelism.tensor"),
        ("-s.method=ngram", "spec.engine.speculative.method"),
        ("--tool-parser-plugin=/models/parser.py", "code in a model's folder"),
        ("--disable-log-stats", "metrics"),
        ("-h", "end at once"),
        ("-dp=2", "spec.scaling.maxReplicas"),
        ("$(PORT_FLAG)", "without a variable"),
        ("--po$(EMPTY)rt=1", "without a variable"),
    ],
)
def test_other_spellings_of_vllms_flags_are_refused(arg: str, field: str) -> None:
    sentences = refusals({**VLLM, "engine.extraArgs": (arg,)})
    assert any(field in sentence for sentence in sentences)


@pytest.mark.parametrize(
    "arg",
    [
        "-O3",
        "-O.mode=3",
        "-cc.mode=3",
        "-ac.backend=x",
        "--logprobs-mode=x",
        "-1",
        "--tokenizer=$(DIR)",
    ],
)
def test_vllms_flags_without_a_field_are_accepted(arg: str) -> None:
    assert refusals({**VLLM, "engine.extraArgs": (arg,)}) == []


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


def test_vllm_lets_running_requests_finish_within_the_grace_period() -> None:
    spec = replace(SMALL, settings=VLLM, termination_grace_s=60)
    (timeout_s,) = [
        int(arg.removeprefix("--shutdown-timeout="))
        for arg in runtime_of(VLLM).serve_args(spec)
        if arg.startswith("--shutdown-timeout=")
    ]
    assert 0 < timeout_s < 60 - PRE_STOP_S - 10
    shortest = replace(spec, termination_grace_s=TERMINATION_OVERHEAD_S + 1)
    assert "--shutdown-timeout=1" in runtime_of(VLLM).serve_args(shortest)  # 0 aborts all of them


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"engine.kvCache.memory": 8 << 20}, ["--kv-cache-memory-bytes=8388608"]),
        ({"engine.scheduling.maxQueuedRequests": 9}, ["--max-num-queued-reqs=9"]),
        ({"engine.quantization.method": "awq"}, ["--quantization=awq"]),
        (
            {"engine.lora.maxAdapters": 3, "engine.lora.maxRank": 32},
            ["--enable-lora", "--max-loras=3", "--max-lora-rank=32"],
        ),
    ],
)
def test_arguments_of_vllm(settings: dict[str, Any], expected: list[str]) -> None:
    assert args(VLLM | settings) == expected
    assert refusals(VLLM | settings) == []


def test_vllm_takes_only_some_ranks() -> None:
    (sentence,) = refusals(VLLM | {"engine.lora.maxAdapters": 3, "engine.lora.maxRank": 24})
    assert "spec.engine.lora.maxRank must be one of 1, 8, 16, 32" in sentence


def test_adapters_are_loaded_at_run_time_only_where_they_are_enabled() -> None:
    name = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
    for settings, is_set in ((VLLM, False), (VLLM | {"engine.lora.maxAdapters": 3}, True)):
        made = runtime_of(settings).environment(replace(SMALL, settings=settings))
        assert (name in {variable["name"] for variable in made}) is is_set


@pytest.mark.parametrize(("limit", "threads"), [({"cpu": "3500m"}, "3"), ({"cpu": "1"}, "1")])
def test_vllm_has_as_many_threads_as_its_pod_and_binds_them_to_no_core(
    limit: dict[str, str], threads: str
) -> None:
    """vLLM would bind the threads of all pods of a node to the same cores."""
    spec = replace(SMALL, settings=VLLM, resources=pod_resources(**limit))
    made = {each["name"]: each["value"] for each in runtime_of(VLLM).environment(spec)}
    assert (made["OMP_NUM_THREADS"], made["VLLM_CPU_OMP_THREADS_BIND"]) == (threads, "nobind")


def test_vllm_has_no_deadline_for_requests() -> None:
    (sentence,) = refusals(VLLM | {"engine.scheduling.requestTimeout": 30.0})
    assert sentence.startswith("spec.engine.scheduling.requestTimeout has no effect")
