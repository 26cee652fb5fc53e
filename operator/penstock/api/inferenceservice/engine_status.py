"""Schema of the engine settings in effect, in the status of an InferenceService."""

from typing import Literal

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.rules import Model

Mode = Literal["Enabled", "Disabled"]


class PrefixCachingStatus(Model):
    """Prefix caching in effect."""

    mode: Mode = Field(description="Whether prefixes are cached.")


class HostOffloadStatus(Model):
    """Host memory for KV-cache blocks in effect."""

    memory: str = Field(description="Host memory of each engine, in bytes.")


class OffloadStatus(Model):
    """Storage for evicted KV-cache blocks in effect."""

    cpu: HostOffloadStatus = Field(description="Host memory.")


class KVCacheStatus(Model):
    """Settings of the KV cache in effect."""

    memory: str | None = optional("Memory of the KV cache, if the spec sets it.")
    dtype: str | None = optional("Number type of the KV cache. auto: the type of the weights.")
    block_size: int | None = optional(
        "Number of tokens in a block. Absent until vLLM has reported what it chose."
    )
    prefix_caching: PrefixCachingStatus | None = optional(
        "Prefix caching in effect. Absent until vLLM has reported it."
    )
    offload: OffloadStatus | None = optional("Storage for evicted blocks, if the spec sets any.")


class QuantizationStatus(Model):
    """Quantization of the weights in effect."""

    method: str = Field(
        description=(
            "Number type that weights are rounded to, or the format of a checkpoint that is quantized "
            "already, such as awq."
        )
    )


class ExpertParallelStatus(Model):
    """Division of mixture-of-experts layers in effect."""

    mode: Mode = Field(description="Whether ranks share the experts among them.")


class ParallelismStatus(Model):
    """Division of the model among the ranks of one engine in effect."""

    tensor: int | None = optional(
        "Number of ranks that split each layer. Absent if it differs between variants."
    )
    pipeline: int = Field(description="Number of stages that the layers are split into.")
    expert: ExpertParallelStatus = Field(description="Division of mixture-of-experts layers.")


class SpeculativeStatus(Model):
    """Speculative decoding in effect."""

    method: str | None = optional("Where drafts come from.")
    num_speculative_tokens: int | None = optional("Number of tokens in a draft.")


class EngineStatus(Model):
    """Engine settings in effect: of the spec, of the check of the model, or by default.

    Absent for a runtime of type Custom.
    """

    device: Literal["cpu", "cuda"] | None = optional(
        "Device that ranks compute on: cuda with accelerators in resources.limits, else cpu. Absent if "
        "it differs between variants."
    )
    max_model_len: int | None = optional(
        "Longest prompt and answer in tokens, by the spec or by the check of the model, if one knows it."
    )
    max_num_seqs: int | None = optional(
        "Number of requests that run at the same time, by the spec, the engines' metrics or the check of "
        "the model. Absent while none of them knows it."
    )
    max_num_batched_tokens: int | None = optional(
        "Number of tokens in a step. Absent under the same conditions as maxNumSeqs."
    )
    dtype: str = Field(
        description=(
            "Number type of the weights and of computation. auto where only the engine knows which one its "
            "device computes."
        )
    )
    memory_utilization_percent: int = Field(
        description="Percentage of the memory that the engine uses."
    )
    quantization: QuantizationStatus | None = optional(
        "Quantization of the weights. Absent without."
    )
    kv_cache: KVCacheStatus = Field(description="Settings of the KV cache in effect.")
    parallelism: ParallelismStatus | None = optional(
        "Division of the model among the ranks of one engine."
    )
    speculative: SpeculativeStatus | None = optional("Speculative decoding. Absent without.")
