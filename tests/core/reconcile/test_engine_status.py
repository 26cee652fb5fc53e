"""Engine settings in effect in a service's status."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from tests.support.specs.preflight_messages import PASSED
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.observed.pods import ObservedPod
from penstock.core.reconcile.engine_status import engine_status
from penstock.core.scaling.signals import CacheSettings, EngineReading
from penstock.core.spec.service import Object, VariantSpec

BARE = service_spec(settings={})
MAX_SEQS = "engine.maxNumSeqs"


def preflight(**report: Any) -> ObservedPod:
    """A preflight with this report."""
    message = json.dumps(json.loads(PASSED) | report)
    return ObservedPod("p", "p", "r", "preflight", "", False, False, "Succeeded", None, message)


def status(
    settings: Object, pod: ObservedPod | None = None, before: Object | None = None
) -> Object:
    pods = () if pod is None else (pod,)
    made = engine_status(replace(BARE, settings=settings), pods, {"engine": before})
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_num_seqs": 64, "max_num_batched_tokens": 2048}, (32, 2048)),
        ({"max_num_seqs": None, "max_num_batched_tokens": None}, (32, None)),
        ({}, (32, None)),
    ],
)
def test_batch_limits_that_the_spec_leaves_open_are_those_of_the_preflight(
    limits: Object, expected: Any
) -> None:
    """Limits of the spec go first. An engine of an older image does not say them."""
    engine = status({MAX_SEQS: 32}, preflight(**limits))
    assert (engine["maxNumSeqs"], engine["maxNumBatchedTokens"]) == expected


def test_batch_limits_stay_as_they_were_until_a_preflight_reports_others() -> None:
    """A CRD from before they could be absent refuses a status without them."""
    before = {"maxNumSeqs": 16, "maxNumBatchedTokens": 512}
    unknown = preflight(max_num_seqs=None, max_num_batched_tokens=None)
    for pod in (None, unknown):
        engine = status({MAX_SEQS: 32}, pod, before)
        assert (engine["maxNumSeqs"], engine["maxNumBatchedTokens"]) == (32, 512)


def test_what_the_engine_derives_from_the_model_is_that_of_the_preflight() -> None:
    found = preflight(max_model_len=4096, dtype="bfloat16", quantization="awq")
    engine = status({}, found)
    assert engine["maxModelLen"] == 4096
    assert engine["dtype"] == engine["kvCache"]["dtype"] == "bfloat16"
    assert engine["quantization"] == {"method": "awq"}
    assert status({}, None, engine) == engine  # the preflight's pod may be deleted


def test_a_report_replaces_what_an_earlier_revision_had() -> None:
    before = {"maxModelLen": 512, "dtype": "float16", "quantization": {"method": "int8"}}
    engine = status({}, preflight(max_model_len=4096, dtype=None, quantization=None), before)
    assert (engine["maxModelLen"], engine["dtype"], engine["quantization"]) == (4096, "auto", None)


def test_every_setting_of_the_spec_is_shown() -> None:
    engine = status(
        {
            "engine.dtype": "float32",
            "engine.maxModelLen": 100,
            "engine.quantization.method": "int8",
            "engine.kvCache.dtype": "fp8",
            "engine.kvCache.memory": 1024,
            "engine.kvCache.blockSize": 32,
            "engine.kvCache.prefixCaching.mode": False,
            "engine.kvCache.offload.cpu.memory": 2048,
            "engine.parallelism.tensor": 2,
            "engine.parallelism.pipeline": 3,
            "engine.parallelism.expert.mode": True,
            "engine.speculative.method": "ngram",
            "engine.speculative.numSpeculativeTokens": 4,
        },
        preflight(max_model_len=4096, dtype="bfloat16", quantization=None),
    )
    assert engine == {
        "device": "cpu", "maxModelLen": 100, "maxNumSeqs": None, "maxNumBatchedTokens": None,
        "dtype": "float32", "memoryUtilizationPercent": 90, "quantization": {"method": "int8"},
        "kvCache": {
            "memory": "1024", "dtype": "fp8", "blockSize": 32, "prefixCaching": {"mode": "Disabled"},
            "offload": {"cpu": {"memory": "2048"}},
        },
        "parallelism": {"tensor": 2, "pipeline": 3, "expert": {"mode": "Enabled"}},
        "speculative": {"method": "ngram", "numSpeculativeTokens": 4},
    }  # fmt: skip


def test_ranks_follow_the_accelerators_unless_variants_differ_in_them() -> None:
    four, two = (pod_resources(accelerator=("nvidia.com/gpu", count)) for count in (4, 2))
    made = engine_status(replace(BARE, resources=four), (), {})
    assert made is not None
    assert (made["device"], made["parallelism"]["tensor"]) == ("cuda", 4)
    variants = tuple(
        VariantSpec(name, resources, 1.0, 0, 9) for name, resources in (("a", four), ("b", two))
    )
    made = engine_status(replace(BARE, variants=variants), (), {})
    assert made is not None
    assert (made["device"], made["parallelism"]["tensor"]) == ("cuda", None)


def test_a_value_in_which_preflights_of_variants_differ_is_absent() -> None:
    pods = [preflight(max_model_len=4096, dtype=dtype) for dtype in ("bfloat16", "float16")]
    made = engine_status(BARE, pods, {})
    assert made is not None
    assert (made["maxModelLen"], made["dtype"]) == (4096, "auto")


def test_what_vllm_decides_is_absent() -> None:
    vllm = {"runtime.type": "VLLM"}
    engine = status(vllm, None, {"maxNumSeqs": 16, "maxModelLen": 512, "dtype": "float16"})
    assert (engine["maxNumSeqs"], engine["maxModelLen"], engine["dtype"]) == (None, None, "auto")
    assert (engine["kvCache"]["blockSize"], engine["kvCache"]["prefixCaching"]) == (None, None)
    assert status(vllm | {"engine.kvCache.blockSize": 64})["kvCache"]["blockSize"] == 64


def reading(**reported: Any) -> EngineReading:
    nothing: Any = dict.fromkeys((field.name for field in fields(EngineReading)), 0)
    return EngineReading(**nothing | {"cache": CacheSettings()} | reported)


def test_what_vllm_decides_is_what_its_metrics_say() -> None:
    spec = replace(BARE, settings={"runtime.type": "VLLM"})
    cache = CacheSettings(block_size=128, dtype="auto", prefix_caching=True)
    made = engine_status(spec, (), {}, [reading(cache=cache, max_num_seqs=None)])
    assert made is not None
    assert made["kvCache"] | {"memory": None, "offload": None} == {
        "memory": None, "dtype": "auto", "blockSize": 128, "prefixCaching": {"mode": "Enabled"},
        "offload": None,
    }  # fmt: skip
    assert made["maxNumSeqs"] is None


def test_the_limits_of_accelerators_of_unknown_memory_are_those_that_run() -> None:
    unknown = preflight(max_num_seqs=None, max_num_batched_tokens=None)
    cache = CacheSettings(block_size=16, dtype="bfloat16", prefix_caching=True)
    running = reading(max_num_seqs=1024, max_num_batched_tokens=8192, cache=cache)
    made = engine_status(BARE, (unknown,), {}, [running])
    assert made is not None
    assert (made["maxNumSeqs"], made["maxNumBatchedTokens"]) == (1024, 8192)
    assert made["kvCache"]["dtype"] == "bfloat16"
    other = replace(running, max_num_seqs=256)  # on another variant
    made = engine_status(BARE, (unknown,), {}, [running, other])
    assert made is not None
    assert (made["maxNumSeqs"], made["maxNumBatchedTokens"]) == (None, 8192)


def test_a_server_of_the_user_has_no_engine_settings() -> None:
    custom = replace(BARE, settings={"runtime.type": "Custom", "runtime.custom.image": "server"})
    assert engine_status(custom, (preflight(),), {"engine": {"maxNumSeqs": 16}}) is None
