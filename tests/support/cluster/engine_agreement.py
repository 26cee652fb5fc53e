"""Compares what an engine reports of itself with the spec that started it."""

import json
import re
from collections.abc import Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from penstock.core.observed.pods import ObservedPod
from penstock.core.reconcile.engine_status import engine_status
from penstock.core.spec.service import PREFLIGHT, ServiceSpec
from penstock_engine.memory.number_types import KV_DTYPES

Json = Any
Labels = dict[str, str]
Metrics = dict[str, tuple[Labels, float]]

LOADED = re.compile(
    r"loaded: (?P<name>\S+) on (?P<device>\w+) in (?P<dtype>\w+)(?P<weights>(?:, [^,]+)*?), "
    r"(?P<blocks>\d+) blocks of (?P<block_size>\d+) tokens, context (?P<context>\d+), "
    r"at most (?P<seqs>\d+) sequences and (?P<tokens>\d+) tokens"
)


# Words of the log by setting.
WEIGHTS = {
    "engine.quantization.method": "{} weights",
    "engine.parallelism.tensor": "tensor {} ",
    "engine.parallelism.pipeline": "pipeline {} ",
}


def disagreements(
    service: ServiceSpec, verdict: Json, models: Json, metrics_text: str, log: str
) -> list[str]:
    """Differences between what the engine reports and the spec, a sentence for each.

    What the spec leaves open is compared with the verdict.

    verdict: of the preflight. models: answer of /v1/models.
    """
    metrics = read_metrics(metrics_text)
    cache = metrics["vllm:cache_config_info"][0]
    settings = service.settings
    expected = {
        "context": settings.get("engine.maxModelLen", verdict["max_model_len"]),
        "seqs": settings.get("engine.maxNumSeqs", verdict["max_num_seqs"]),
        "tokens": settings.get("engine.maxNumBatchedTokens", verdict["max_num_batched_tokens"]),
        "block_size": settings.get("engine.kvCache.blockSize", 16),
        "name": service.model_name,
        "device": service.resources.device,
    }
    reported = {
        "context": models["data"][0]["max_model_len"],
        "seqs": metrics["penstock:max_num_seqs"][1],
        "tokens": metrics["penstock:max_num_batched_tokens"][1],
        "block_size": int(cache["block_size"]),
        "name": models["data"][0]["id"],
    }
    return [
        *_differences("engine", reported, expected),
        *_differences("log", _loaded(log), expected),
        *_differences("cache", *_cache(service, verdict, cache)),
        *_differences(
            "status.engine", *_status(service, verdict, {**reported, **_loaded(log)}, cache)
        ),
        *_weights_problems(service, log),
    ]


def read_metrics(text: str) -> Metrics:
    """The first sample of each metric: its labels and value."""
    found: Metrics = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, (sample.labels, sample.value))
    return found


def _differences(where: str, reported: Json, expected: Json) -> Iterator[str]:
    for name, value in reported.items():
        if name in expected and value != expected[name]:
            yield f"{where}: {name} is {value}, not {expected[name]}"


def _loaded(log: str) -> Json:
    match = LOADED.search(log)
    if match is None:
        return {"name": "missing from the log"}
    return {name: int(text) if text.isdigit() else text for name, text in match.groupdict().items()}


def _cache(service: ServiceSpec, verdict: Json, cache: Labels) -> tuple[Json, Json]:
    """Labels of vllm:cache_config_info, as reported and as the spec says."""
    settings = service.settings
    size_bytes, block_bytes = (
        float(cache["kv_cache_memory_bytes"]),
        verdict["kv_bytes_per_token"] * float(cache["block_size"]),
    )
    reported = {
        "enable_prefix_caching": cache["enable_prefix_caching"],
        "gpu_memory_utilization": float(cache["gpu_memory_utilization"]),
        "tokens": float(cache["kv_cache_size_tokens"]),
    }
    expected = {
        "enable_prefix_caching": str(settings.get("engine.kvCache.prefixCaching.mode", True)),
        "gpu_memory_utilization": settings.get("engine.memoryUtilizationPercent", 90) / 100,
        "tokens": float(verdict["kv_capacity_tokens"]),
    }
    dtype = settings.get("engine.kvCache.dtype", "auto")
    if dtype != "auto":
        expected["8 bits"] = True
        reported["8 bits"] = cache["cache_dtype"] in ("int8", "float8_e4m3fn", "fp8", "fp8_e4m3")
    if "engine.kvCache.memory" in settings:
        expected["memory within a block"] = True
        reported["memory within a block"] = (
            0 <= settings["engine.kvCache.memory"] - size_bytes < block_bytes
        )
    return reported, expected


def _status(
    service: ServiceSpec, verdict: Json, reported: Json, cache: Labels
) -> tuple[Json, Json]:
    """Settings by the engine's own report, and by the service's status. reported: besides the cache."""
    said = json.dumps(verdict)
    preflight = ObservedPod("", "", "", PREFLIGHT, "", False, False, "Succeeded", None, said)
    status = engine_status(service, [preflight], {})
    assert status is not None
    wanted = status["kvCache"]["dtype"]
    expected = {
        "device": status["device"],
        "dtype": status["dtype"],
        "context": status["maxModelLen"],
        "seqs": status["maxNumSeqs"],
        "tokens": status["maxNumBatchedTokens"],
        "block_size": status["kvCache"]["blockSize"],
        "cache_dtype": KV_DTYPES.get(wanted, status["dtype"] if wanted == "auto" else wanted),
        "prefix_caching": str(status["kvCache"]["prefixCaching"]["mode"] == "Enabled"),
    }
    own = {"cache_dtype": cache["cache_dtype"], "prefix_caching": cache["enable_prefix_caching"]}
    return reported | own, expected


def _weights_problems(service: ServiceSpec, log: str) -> Iterator[str]:
    wanted = service.settings.get("engine.dtype", "auto")
    found = _loaded(log).get("dtype")
    if wanted not in ("auto", found):
        yield f"log: dtype is {found}, not {wanted}"
    weights = str(_loaded(log).get("weights"))
    for path, words in WEIGHTS.items():
        value = service.settings.get(path, 1)
        if value not in (1, False) and words.format(value) not in weights:
            yield f"log: {path} is {value}, but the weights are{weights}"


def as_manifest(spec: Json) -> str:
    """The spec on one line, to reproduce an outcome with."""
    return json.dumps({"spec": spec})
