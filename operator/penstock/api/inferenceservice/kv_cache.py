"""Schema of spec.engine.kvCache."""

from typing import Annotated, Literal

from pydantic import Field

from penstock.api.schema.defaults import operator_default, optional
from penstock.api.schema.rules import Model, Obeys, Rule
from penstock.api.schema.scalars import ENGINE_WORD, Bytes, Quantity
from penstock.core.spec.settings import DEFAULT_BLOCK_SIZE


class PrefixCaching(Model):
    """Reuse of KV-cache blocks for requests with the same beginning."""

    mode: Literal["Enabled", "Disabled"] | None = optional(
        "Whether the blocks of finished requests are kept and reused.",
        json_schema_extra=operator_default("Enabled"),
    )


class Events(Model):
    """Messages about which blocks the KV cache has."""

    mode: Literal["Enabled", "Disabled"] | None = optional(
        "Whether engines publish which blocks their prefix cache has, at ports 5557 and 5558 of the pod, in "
        "vLLM's format. The messages contain the tokens of prompts.",
        json_schema_extra=operator_default("Disabled"),
    )


class HostOffload(Model):
    """Host memory for KV-cache blocks."""

    memory: Quantity = Field(
        description=(
            "Host memory of each engine for blocks that are evicted from the KV cache, such as 8Gi. It "
            "counts toward the pod's memory limit."
        )
    )


class Offload(Model):
    """Storage for KV-cache blocks that are evicted from the device's memory."""

    cpu: HostOffload = Field(description="Host memory.")


class KVCache(Model):
    """Memory for the keys and values of tokens in use (KV cache)."""

    memory: Bytes | None = optional(
        "Size of the KV cache of each engine in bytes, as a quantity such as 512Mi. "
        "Default: the part of memoryUtilizationPercent that is left after weights and working "
        "memory."
    )
    dtype: Annotated[str, ENGINE_WORD] | None = optional(
        "Number type of the KV cache, in the runtime's spelling. Penstock: auto, int8, fp8 or "
        "fp8_e4m3. A type with 8 bits, such as fp8_e4m3, holds twice the tokens of bfloat16 and rounds "
        "keys and values. Default: the type of weights.",
        min_length=1,
        max_length=32,
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
    ] = optional(
        "Number of tokens in one block of the KV cache. Only whole blocks are shared by "
        "prefix caching.",
        json_schema_extra=operator_default(DEFAULT_BLOCK_SIZE),
    )
    prefix_caching: PrefixCaching = Field(
        default=PrefixCaching(),
        description="Reuse of KV-cache blocks for requests with the same beginning.",
    )
    events: Events = Field(
        default=Events(), description="Messages about which blocks the KV cache has."
    )
    offload: Offload | None = optional(
        "Storage for blocks that are evicted from the device's memory."
    )
