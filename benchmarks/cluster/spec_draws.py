"""Draws InferenceService specs at random over all fields of engine, runtime, tracing and resources.

The CRD's schema is walked, so a new field is drawn as soon as it exists. POOLS has the values of fields whose
type does not say what is sensible: first those that an engine of these models can follow, then bad ones.
"""

from random import Random
from typing import Any

from tests.support.engine.small_models import SERVED, TEMPLATES

from penstock.api.generation.crdgen import schema_of
from penstock.api.inferenceservice.kind import InferenceServiceSpec

Json = Any

SCHEMA = schema_of(InferenceServiceSpec)["properties"]
SECTIONS = ("engine", "tracing", "resources", "terminationGracePeriodSeconds")
# Probability that a spec sets an optional field, and that a field of a spec with faults has a bad value.
SET, BAD = 0.5, 0.12
# Kinds of faults in a spec: bad values of the pools below, or values outside of the schema's bounds.
FAULTS = ("", "", "pools", "pools", "pools", "schema")
QUANTITIES = (["64Mi", "100M", "200Mi", 134217728], ["0", "1", "500m", "900Ti", "-1", "1x", "1e3"])
DURATIONS = (["1m", "1h30m", "30s", "99999h"], ["0s", "1.5s", "1", "5ms"])
DECIMALS = (["0.5", "1", "0.95", "0.001"], ["-1", "3", "0.0", "x", "00.70", "1e-3"])
WORDS = (["auto"], ["x", "-x", "None"])

CLAIM = "pvc://models"
DRAFTS = {"draft_model": f"{CLAIM}/draft", "eagle": f"{CLAIM}/head"}
MEMORY = (["2Gi", "3Gi", "1500M"], ["700Mi", "100Mi", "640Mi"])

POOLS: dict[str, tuple[list[Json], list[Json]]] = {
    "engine.maxModelLen": ([128, 1000, 2048, 4096], [8192, 16, 10_000_000]),
    "engine.maxNumSeqs": ([1, 2, 7, 32, 256], [4096]),
    "engine.maxNumBatchedTokens": ([16, 100, 512, 2048], [131072]),
    "engine.memoryUtilizationPercent": ([50, 80, 90, 100], [5, 20]),
    "engine.quantization.method": (["int8", "int4"], ["awq", "fp8", "bitsandbytes"]),
    "engine.kvCache.dtype": (["auto", "int8", "fp8", "fp8_e4m3"], ["fp8_e5m2", "int4"]),
    "engine.kvCache.blockSize": ([8, 16, 32, 64, 128], [1, 48]),
    "engine.parallelism.tensor": ([1, 2], [3, 8, 64]),
    "engine.parallelism.pipeline": ([1, 2], [3, 5, 64]),
    "engine.speculative.method": (
        ["ngram", "suffix", "draft_model", "eagle"], ["eagle3", "mtp", "medusa"]
    ),
    "engine.speculative.numSpeculativeTokens": ([1, 4, 8], [32]),
    "engine.speculative.model.uri": (
        list(DRAFTS.values()), [f"{CLAIM}/none", f"{CLAIM}/gguf", f"{CLAIM}/gptq", "s3://a/b"]
    ),
    "engine.speculative.ngram.promptLookupMin": ([1, 2, 4], [8, 16]),
    "engine.speculative.ngram.promptLookupMax": ([4, 8], [1, 16]),
    "engine.lora.maxAdapters": ([1, 2, 8], [1024]),
    "engine.lora.maxRank": ([8, 16, 64], [7, 512]),
    "engine.lora.maxCPUAdapters": ([8, 16], [1, 4096]),
    "engine.lora.sources": ([[CLAIM], ["pvc://adapters"]], [["s3://a"], [f"{CLAIM}/plain"]]),
    "engine.generation.defaults.maxTokens": ([2, 5, 100], [10_000_000]),
    "engine.generation.defaults.repetitionPenalty": (["1", "1.05", "2"], ["0", "2.5"]),
    "engine.parsers.toolCall": (["hermes", "llama3_json", "mistral"], ["pythonic", "granite4"]),
    "engine.parsers.reasoning": (["qwen3", "deepseek_r1"], ["mimo", "gpt"]),
    "engine.parsers.chatTemplate.configMapKeyRef.name": (["templates"], ["-"]),
    "engine.parsers.chatTemplate.configMapKeyRef.key": (["chat.jinja"], ["absent", *TEMPLATES]),
    "tracing.exporterEndpoint": (["http://127.0.0.1:9"], ["127.0.0.1:9", "grpc://a:1"]),
    "runtime.vllm.image": (["vllm/vllm-openai:v1"], [""]),
    "runtime.custom.image": (["server:1"], [""]),
    "runtime.custom.command": ([["server"]], []),
    "runtime.custom.args": ([["--port=$(PORT)"]], []),
    "runtime.custom.readinessPath": (["/health"], ["health"]),
    "resources.claims": ([[]], [[{"name": "gpu"}]]),
    "terminationGracePeriodSeconds": ([20, 45], [14, 7200]),
}  # fmt: skip

EXTRA_ARGS = (
    ["--max-logprobs=5"], ["--max-logprobs", "-1"], ["--enforce-eager"], ["--no-async-scheduling"],
    ["--log-level=debug"], ["--max-n-sequences=4"], ["--enable-sleep-mode"],
    ["--default-chat-template-kwargs={\"a\": 1}"],
)  # fmt: skip
BAD_EXTRA_ARGS = (
    ["--no-such-flag"], ["--trust-remote-code"], ["word"], ["--max-logprobs=-7"], ["--max-logprobs"],
    ["--help"], ["-h"],
    ["--max-logprobs"], ["--help"], ["-h"],
    ["--enforce-eager=yes"], ["--port=1"], ["--max-num-seqs=3"], ["--no-enable-lora"], ["--device=cuda"],
    ["--lora-modules=a=/models/plain"], ["--lora-modules=a"], ["--chat-template=x"], ["--scope=folder"],
    ["--termination-log=/tmp/x"], ["--data-parallel-size=2"], ["--tokenizer=/models/none"], ["--"],
    ["--default-chat-template-kwargs=1"], ["--num-gpu-blocks-override=2"], ["--api-key="], [""],
    ["--default-chat-template-kwargs={\"messages\": 1}"], ["--otlp-traces-endpoint=x"],
    ["--ssl-keyfile=/none"], ["--config=/none"], ["--memory-limit-bytes=1"], ["--quantization", "int8"],
    ["--kv-transfer-config={\"a\": 1}"], ["--max-logprobs=5", "word"], ["--tool-call-parser=hermes"],
)  # fmt: skip


class SpecDraw:
    """Draws one spec. Some of its fields have bad values, if it has faults."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._faults = draw.choice(FAULTS)

    def spec(self) -> Json:
        name = self._draw.choice(SERVED)
        if self._is_bad():
            name = self._draw.choice(("absent", "head", "templates"))
        spec: Json = {"model": {"uri": f"{CLAIM}/{name}"}}
        if self._draw.random() < 0.3:
            spec["model"]["name"] = self._draw.choice(("chat", "a.b-c_d"))
        for section in SECTIONS:
            if section in ("engine", "resources") or self._chance(SET):
                spec[section] = self._value(SCHEMA[section], section)
        self._choose_runtime(spec)
        self._repair(spec)
        return spec

    def _choose_runtime(self, spec: Json) -> None:
        """Choose a runtime, mostly Penstock. A Custom one mostly gets no engine fields, which it refuses."""
        kind = self._draw.choices(("Penstock", "VLLM", "Custom"), (8, 1, 1))[0]
        if kind == "Penstock" and self._chance(0.7):
            return
        spec["runtime"] = {"type": kind}
        for name, child in SCHEMA["runtime"]["properties"].items():
            fits = name == kind.lower() and (name == "custom" or self._chance(SET))
            if name != "type" and fits != self._is_bad():
                spec["runtime"][name] = self._value(child, f"runtime.{name}")
        if "custom" in spec["runtime"] and not self._is_bad():
            spec["runtime"]["custom"]["metrics"] = {"dialect": "VLLM"}
        if kind == "Custom" and self._chance(0.8):
            spec.pop("engine", None)
            spec.pop("tracing", None)

    def _repair(self, spec: Json) -> None:
        """Make fields that depend on each other consistent, in most specs."""
        if self._is_bad():
            return
        engine = spec.get("engine", {})
        if (speculative := engine.get("speculative")) is not None:
            speculative.pop("model", None)
            method = speculative.get("method")
            if method in DRAFTS:
                speculative["model"] = {"uri": DRAFTS[method]}
            if method == "eagle" and not self._is_bad():
                spec["model"]["uri"] = f"{CLAIM}/plain"
                engine.pop("parallelism", None)
            if method != "ngram":
                speculative.pop("ngram", None)
        if {"maxNumSeqs", "maxNumBatchedTokens"} <= engine.keys() and not self._is_bad():
            pair = sorted((engine["maxNumSeqs"], engine["maxNumBatchedTokens"]))
            engine["maxNumSeqs"], engine["maxNumBatchedTokens"] = (
                min(pair[0], 4096),
                max(pair[1], 16),
            )
        if spec["model"]["uri"].endswith(("gptq", "fp8")) and not self._is_bad():
            engine.pop("quantization", None)
        if (
            not spec["model"]["uri"].endswith("moe")
            or engine.get("parallelism", {}).get("tensor") != 2
        ):
            engine.get("parallelism", {}).pop("expert", None)
        if (tracing := spec.get("tracing")) and not tracing.get("sampler", "").endswith("ratio"):
            tracing.pop("samplerArg", None)

    def _value(self, node: Json, path: str) -> Json:
        if path == "engine.extraArgs":
            pool = BAD_EXTRA_ARGS if self._is_bad() else EXTRA_ARGS
            return list(self._draw.choice(pool))
        if path in POOLS:
            good, bad = POOLS[path]
            return self._one_of(good, bad)
        if path in ("resources.limits", "resources.requests"):
            return self._resources(path)
        match node.get("type", "int-or-string"):
            case "object":
                return self._object(node, path)
            case "integer":
                return self._integer(node)
            case "boolean":
                return self._chance(0.5)
            case "array":
                return []
        return self._text(node)

    def _object(self, node: Json, path: str) -> Json:
        required = node.get("required", [])
        return {
            name: self._value(child, f"{path}.{name}")
            for name, child in node["properties"].items()
            if (name in required and not self._is_bad(0.05, "schema")) or self._chance(SET)
        }

    def _integer(self, node: Json) -> Json:
        low, high = node.get("minimum", 0), node.get("maximum", 1000)
        if self._is_bad(kind="schema"):
            return self._draw.choice((low - 1, high + 1, low, high, str(high)))
        return min(high, round(max(1, low) * (high / max(1, low)) ** self._draw.random()))

    def _text(self, node: Json) -> Json:
        if "enum" in node:
            if self._is_bad(kind="schema"):
                return self._draw.choice(("x", "", node["enum"][0].swapcase()))
            return self._draw.choice(node["enum"])
        if "x-kubernetes-int-or-string" in node:
            return self._one_of(*QUANTITIES)
        rules = " ".join(rule["rule"] for rule in node.get("x-kubernetes-validations", []))
        if "h|m|s|ms" in rules:
            return self._one_of(*DURATIONS)
        return self._one_of(*(DECIMALS if "double(self)" in rules else WORDS))

    def _resources(self, path: str) -> Json:
        if path.endswith("requests"):
            return {"cpu": self._one_of(["100m", "0.5"], ["3", "x"])}
        limits = {
            "cpu": self._one_of(["1", 2, "500m"], ["0", "-1"]),
            "memory": self._one_of(*MEMORY),
        }
        if self._is_bad() or self._chance(0.1):
            limits["nvidia.com/gpu"] = self._one_of([1, 2, "4"], ["1.5", 65, 3])
        return {name: value for name, value in limits.items() if self._chance(0.8)}

    def _one_of(self, good: list[Json], bad: list[Json]) -> Json:
        return self._draw.choice(bad if bad and self._is_bad() else good)

    def _is_bad(self, probability: float = BAD, kind: str = "pools") -> bool:
        return self._draw.random() < probability and self._faults == kind

    def _chance(self, probability: float) -> bool:
        return self._draw.random() < probability


def draw_spec(seed: int, number: int) -> Json:
    """The spec of this number in the campaign with this seed."""
    return SpecDraw(Random(f"{seed}/{number}")).spec()
