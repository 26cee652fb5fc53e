"""Schema of spec.engine. Fields are named after the arguments of vLLM.

Values that are passed on to the engine keep its spelling, such as `auto` and `bfloat16`. All settings are
optional: the API server stores no defaults, so they can follow the model and the hardware.
"""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.inferenceservice.decoding import Generation, Parsers, Speculative
from penstock.api.inferenceservice.kv_cache import KVCache
from penstock.api.schema.defaults import operator_default, optional
from penstock.api.schema.lists import SET, UNIQUE, argument_list, listed
from penstock.api.schema.model_uri import no_parent_folders
from penstock.api.schema.rules import Model, Obeys, Rule, matches
from penstock.api.schema.scalars import ENGINE_WORD, PositiveDuration
from penstock.core.spec.service import MAX_ADAPTER_SOURCES
from penstock.core.spec.settings import DEFAULT_DTYPE, DEFAULT_MEMORY_UTILIZATION_PERCENT

RULES = (
    Rule(
        "!has(self.engine) || !has(self.engine.maxNumBatchedTokens) || !has(self.engine.maxNumSeqs) || "
        "self.engine.maxNumBatchedTokens >= self.engine.maxNumSeqs",
        lambda spec: (
            None in (spec.engine.max_num_batched_tokens, spec.engine.max_num_seqs)
            or spec.engine.max_num_batched_tokens >= spec.engine.max_num_seqs
        ),
        "engine.maxNumBatchedTokens must not be smaller than engine.maxNumSeqs: every running "
        "request needs a token of each step",
    ),
)


class Quantization(Model):
    """Quantization of weights when they are loaded."""

    method: Annotated[str, ENGINE_WORD] = Field(
        description=(
            "Number type that weights are rounded to, in the runtime's spelling, such as int8. Penstock: "
            "int8 or int4. Checkpoints that are already quantized (AWQ, GPTQ, FP8) need no setting."
        ),
        min_length=1,
        max_length=64,
    )


class ExpertParallel(Model):
    """Division of mixture-of-experts layers."""

    mode: Literal["Enabled", "Disabled"] = Field(
        description="Whether ranks share the experts among them instead of splitting every expert."
    )


class Parallelism(Model):
    """Division of a model among the accelerators of one engine."""

    tensor: int | None = optional(
        "Number of ranks that split each layer, such as 4. Default: the number of accelerators, "
        "divided by pipeline.",
        ge=1,
        le=64,
    )
    pipeline: int | None = optional(
        "Number of consecutive stages that the layers are split into, such as 2. Default: 1.",
        ge=1,
        le=64,
    )
    expert: ExpertParallel | None = optional("Division of mixture-of-experts layers.")


AdapterSource = Annotated[
    str,
    Field(
        description="A claim, or a folder of the node.",
        min_length=7,
        max_length=259,
    ),
    Obeys(
        matches(
            r"^(pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?|file:///[^:]*)$",
            "spec.engine.lora.sources must have entries like pvc://CLAIM, without a path, or "
            "file:///FOLDER, without a colon",
        ),
        no_parent_folders("spec.engine.lora.sources"),
    ),
]


class Lora(Model):
    """LoRA adapters of each engine."""

    RULES = (
        Rule(
            "!has(self.maxCPUAdapters) || self.maxCPUAdapters >= self.maxAdapters",
            lambda lora: (
                lora.max_cpu_adapters is None or lora.max_cpu_adapters >= lora.max_adapters
            ),
            "maxCPUAdapters must not be smaller than maxAdapters: running adapters are in host memory too",
        ),
    )

    max_adapters: int = Field(
        description="Maximum number of adapters that an engine runs at the same time, such as 8.",
        ge=1,
        le=1024,
    )
    max_rank: int | None = optional(
        "Maximum rank of an adapter, such as 32.",
        ge=1,
        le=512,
        json_schema_extra=operator_default(16),
    )
    max_cpu_adapters: int | None = optional(
        "Maximum number of adapters in host memory. Default: maxAdapters.",
        alias="maxCPUAdapters",
        ge=1,
        le=4096,
    )
    sources: Annotated[list[AdapterSource], UNIQUE] = listed(
        "Volumes that adapters are loaded from: pvc://CLAIM or file:///FOLDER, such as pvc://adapters. "
        "Engine pods mount them read-only. With file://, the operator must have been started with "
        "--allowed-host-path for the folder. Default: the volume of the model, which is the whole claim "
        "of spec.model.uri, or its folder.",
        max_length=MAX_ADAPTER_SOURCES,
        json_schema_extra=SET,
    )


class Scheduling(Model):
    """Order and limits of waiting requests in each engine."""

    policy: Literal["FCFS", "Priority"] | None = optional(
        "Order of waiting requests. FCFS: by arrival. Priority: by `priority` in the request, lowest "
        "first.",
        json_schema_extra=operator_default("FCFS"),
    )
    max_queued_requests: int | None = optional(
        "Maximum number of waiting requests. Further ones get status 503. Default: 1024.",
        ge=1,
        le=1_000_000,
    )
    max_queued_tokens: int | None = optional(
        "Maximum number of prompt tokens of requests without a first token. Further requests get "
        "status 503. Default: no limit.",
        ge=1,
        le=1_000_000_000,
    )
    request_timeout: PositiveDuration | None = optional(
        "Maximum duration of a request in the engine, such as 5m. Default: no limit."
    )


class Engine(Model):
    """Settings of each engine."""

    max_model_len: int | None = optional(
        "Maximum number of tokens of one request, prompt and answer together. Default: "
        "the context length of the model.",
        ge=16,
        le=10_000_000,
    )
    max_num_seqs: int | None = optional(
        "Maximum number of requests that an engine runs at the same time. Default: the engine's. "
        "That of Penstock is 64 on the CPU, 256 on accelerators, 1024 on those of 70 GiB or more, and "
        "fewer where memory is scarce or maxNumBatchedTokens is smaller.",
        ge=1,
        le=4096,
    )
    max_num_batched_tokens: int | None = optional(
        "Maximum number of tokens that an engine computes in one step. A larger value "
        "finishes prompts sooner; a smaller value keeps the time between the tokens of "
        "running requests shorter. Default: the engine's. That of Penstock is 512 on the CPU, 2048 on "
        "accelerators, 8192 on those of 70 GiB or more, fewer where memory is scarce, and at least "
        "maxNumSeqs.",
        ge=16,
        le=131072,
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = optional(
        "Number type of weights and activations, not of the KV cache. auto chooses the type that "
        "the hardware computes natively.",
        json_schema_extra=operator_default(DEFAULT_DTYPE),
    )
    seed: int | None = optional(
        "Seed of the generator that draws a seed for each request without one. With it, "
        "all replicas draw the same seeds, and again after a restart. Default: random "
        "for each engine.",
        ge=0,
        le=2**31 - 1,
    )
    memory_utilization_percent: int | None = optional(
        "Percentage of the pod's or the accelerator's memory that the engine may use, for "
        "weights, working memory and KV cache together.",
        ge=5,
        le=100,
        json_schema_extra=operator_default(DEFAULT_MEMORY_UTILIZATION_PERCENT),
    )
    quantization: Quantization | None = optional(
        "Quantization of weights when they are loaded. Default: none."
    )
    kv_cache: KVCache = Field(default=KVCache(), description="Settings of the KV cache.")
    parallelism: Parallelism | None = optional(
        "Division of the model among the accelerators of one engine."
    )
    speculative: Speculative | None = optional("Speculative decoding. Default: none.")
    lora: Lora | None = optional(
        "LoRA adapters, which LoraAdapters name. Default: none are served."
    )
    generation: Generation | None = optional("Sampling parameters of requests that set none.")
    parsers: Parsers | None = optional("Formats of prompts and answers.")
    scheduling: Scheduling | None = optional("Order and limits of waiting requests in each engine.")
    extra_args: list[Annotated[str, Field(max_length=4096)]] = argument_list(
        "Further arguments of the runtime's command, for what has no field, such as --max-logprobs=5. An "
        "argument that has a field is refused."
    )
