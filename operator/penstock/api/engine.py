"""Schema of spec.engine. Fields are named after the arguments of vLLM.

Values that are passed on to the engine keep its spelling, such as `auto` and `bfloat16`. All settings are
optional: the API server stores no defaults, so they can follow the model and the hardware.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.api.defaults import default_of, operator_default
from penstock.api.rules import Model, Obeys, Rule
from penstock.api.scalars import Quantity
from penstock.core.spec.service import ServiceSpec

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


def _default(attribute: str) -> dict[str, Any]:
    return operator_default(default_of(ServiceSpec, attribute))


class PrefixCaching(Model):
    """Reuse of KV-cache blocks for requests with the same beginning."""

    mode: Literal["Enabled", "Disabled"] | None = Field(
        default=None,
        description="Whether the blocks of finished requests are kept and reused.",
        json_schema_extra=operator_default("Enabled"),
    )


class KVCache(Model):
    """Memory for the keys and values of tokens in use (KV cache)."""

    memory: Quantity | None = Field(
        default=None,
        description=(
            "Size of the KV cache of each engine in bytes, as a quantity such as 512Mi. "
            "Default: the part of memoryUtilizationPercent that is left after weights and working "
            "memory."
        ),
    )
    block_size: Annotated[
        int | None,
        Obeys(
            Rule(
                "self in [8, 16, 32, 64, 128]",
                lambda tokens: tokens in (8, 16, 32, 64, 128),
                "spec.engine.kvCache.blockSize must be 8, 16, 32, 64 or 128",
            )
        ),
    ] = Field(
        default=None,
        description=(
            "Number of tokens in one block of the KV cache. Only whole blocks are shared by "
            "prefix caching."
        ),
        json_schema_extra=_default("block_size"),
    )
    prefix_caching: PrefixCaching = Field(
        default=PrefixCaching(),
        description="Reuse of KV-cache blocks for requests with the same beginning.",
    )


class Engine(Model):
    """Settings of each engine."""

    max_model_len: int | None = Field(
        default=None,
        description=(
            "Maximum number of tokens of one request, prompt and answer together. Default: "
            "the context length of the model."
        ),
        ge=16,
        le=10_000_000,
    )
    max_num_seqs: int | None = Field(
        default=None,
        description=(
            "Maximum number of requests that an engine runs at the same time. A smaller "
            "maxNumBatchedTokens also bounds the default."
        ),
        ge=1,
        le=4096,
        json_schema_extra=_default("max_num_seqs"),
    )
    max_num_batched_tokens: int | None = Field(
        default=None,
        description=(
            "Maximum number of tokens that an engine computes in one step. A larger value "
            "finishes prompts sooner; a smaller value keeps the time between the tokens of "
            "running requests shorter. The default is raised to maxNumSeqs."
        ),
        ge=16,
        le=131072,
        json_schema_extra=_default("max_num_batched_tokens"),
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = Field(
        default=None,
        description=(
            "Number type of weights and activations. auto chooses the type that the hardware "
            "computes natively."
        ),
        json_schema_extra=_default("dtype"),
    )
    seed: int | None = Field(
        default=None,
        description=(
            "Seed of the generator that draws a seed for each request without one. With it, "
            "all replicas draw the same seeds, and again after a restart. Default: random "
            "for each engine."
        ),
        ge=0,
        le=2**31 - 1,
    )
    memory_utilization_percent: int | None = Field(
        default=None,
        description=(
            "Percentage of the pod's or the accelerator's memory that the engine may use, for "
            "weights, working memory and KV cache together."
        ),
        ge=5,
        le=100,
        json_schema_extra=_default("memory_utilization_percent"),
    )
    kv_cache: KVCache = Field(default=KVCache(), description="Settings of the KV cache.")
