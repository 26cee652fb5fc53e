"""Renders the engine settings in effect: of the spec, of the preflight, and defaults of the runtime."""

from collections.abc import Collection
from typing import Any

from penstock.core.observed.pods import ObservedPod
from penstock.core.observed.preflight import preflight_result
from penstock.core.runtimes.devices import tensor_ranks
from penstock.core.scaling.signals import EngineReading
from penstock.core.spec.service import Object, ServiceSpec
from penstock.core.spec.settings import (
    CUSTOM,
    DEFAULT_BLOCK_SIZE,
    DEFAULT_MEMORY_UTILIZATION_PERCENT,
    DTYPE,
    EXPERT_PARALLEL,
    KV_BLOCK_SIZE,
    KV_DTYPE,
    KV_MEMORY,
    KV_OFFLOAD_MEMORY,
    MAX_MODEL_LEN,
    MAX_NUM_BATCHED_TOKENS,
    MAX_NUM_SEQS,
    MEMORY_UTILIZATION,
    NUM_SPECULATIVE_TOKENS,
    PENSTOCK,
    PIPELINE_PARALLEL,
    PREFIX_CACHING,
    QUANTIZATION,
    RUNTIME_TYPE,
    SPECULATION_METHOD,
    Settings,
)

# A number type that the engine chooses.
AUTO = "auto"
# Defaults of Penstock's engine that no device and no model changes. vLLM has others for some.
PENSTOCK_DEFAULTS: Settings = {KV_BLOCK_SIZE: DEFAULT_BLOCK_SIZE, PREFIX_CACHING: True}
DEFAULTS: Settings = {
    DTYPE: AUTO,
    KV_DTYPE: AUTO,
    MEMORY_UTILIZATION: DEFAULT_MEMORY_UTILIZATION_PERCENT,
}


def engine_status(
    spec: ServiceSpec,
    preflights: Collection[ObservedPod],
    previous: Object,
    readings: Collection[EngineReading] = (),
) -> Object | None:
    """The engine settings in effect; None for a server of the user, which has settings of its own.

    preflights: of the spec's revision; they report what Penstock's engine derives from the model. previous:
    the status with what was reported before, which stays until there is another report. readings: metrics of
    the spec's revision, with what engines decided themselves. A value is None where none of these knows it,
    or where variants differ in it.
    """
    runtime = spec.settings.get(RUNTIME_TYPE, PENSTOCK)
    if runtime == CUSTOM:
        return None
    found = _measured(readings)
    if runtime == PENSTOCK:
        found = {**PENSTOCK_DEFAULTS, **_derived(preflights, previous.get("engine") or {}), **found}
    settings = {**DEFAULTS, **found, **spec.settings}
    if settings[DTYPE] in (None, AUTO):
        settings[DTYPE] = found.get(DTYPE) or AUTO
    if settings[KV_DTYPE] == AUTO:
        of_weights = settings[DTYPE] if runtime == PENSTOCK else AUTO
        settings[KV_DTYPE] = found.get(KV_DTYPE, AUTO) if of_weights == AUTO else of_weights
    return {
        "device": _only({placed.resources.device for placed in spec.placed.values()}),
        "maxModelLen": settings.get(MAX_MODEL_LEN),
        "maxNumSeqs": settings.get(MAX_NUM_SEQS),
        "maxNumBatchedTokens": settings.get(MAX_NUM_BATCHED_TOKENS),
        "dtype": settings[DTYPE],
        "memoryUtilizationPercent": settings[MEMORY_UTILIZATION],
        "quantization": _section(method=settings.get(QUANTIZATION)),
        "kvCache": _kv_cache(settings),
        "parallelism": {
            "tensor": _only({tensor_ranks(placed) for placed in spec.placed.values()}),
            "pipeline": settings.get(PIPELINE_PARALLEL, 1),
            "expert": {"mode": _mode(settings.get(EXPERT_PARALLEL, False))},
        },
        "speculative": _section(
            method=settings.get(SPECULATION_METHOD),
            numSpeculativeTokens=settings.get(NUM_SPECULATIVE_TOKENS),
        ),
    }


def _measured(readings: Collection[EngineReading]) -> Settings:
    """Settings that all engines report alike."""
    found = {
        KV_BLOCK_SIZE: _only({each.cache.block_size for each in readings}),
        KV_DTYPE: _only({each.cache.dtype for each in readings}),
        PREFIX_CACHING: _only({each.cache.prefix_caching for each in readings}),
        MAX_NUM_SEQS: _only({each.max_num_seqs for each in readings}),
        MAX_NUM_BATCHED_TOKENS: _only({each.max_num_batched_tokens for each in readings}),
    }
    return {path: value for path, value in found.items() if value is not None}


def _derived(preflights: Collection[ObservedPod], before: Object) -> Settings:
    """Settings that the engine derives from the model, by the preflights, else by the previous status.

    before: the engine in the previous status. Limits of a step that are unknown stay what they were, as a
    CRD from before they could be absent refuses a status without them.
    """
    reported = _reported(preflights)
    limits = {
        MAX_NUM_SEQS: reported.get(MAX_NUM_SEQS) or before.get("maxNumSeqs"),
        MAX_NUM_BATCHED_TOKENS: (
            reported.get(MAX_NUM_BATCHED_TOKENS) or before.get("maxNumBatchedTokens")
        ),
    }
    kept = {
        MAX_MODEL_LEN: before.get("maxModelLen"),
        DTYPE: before.get("dtype"),
        QUANTIZATION: (before.get("quantization") or {}).get("method"),
    }
    return {**kept, **reported, **limits}


def _reported(preflights: Collection[ObservedPod]) -> Settings:
    """The settings that preflights report. A value is None if they differ in it."""
    results = [found.settings for each in preflights if (found := preflight_result(each))]
    names = {name for settings in results for name in settings}
    return {name: _only({settings.get(name) for settings in results}) for name in names}


def _kv_cache(settings: Settings) -> Object:
    memory, offloaded = settings.get(KV_MEMORY), settings.get(KV_OFFLOAD_MEMORY)
    is_cached = settings.get(PREFIX_CACHING)
    return {
        "memory": None if memory is None else str(memory),
        "dtype": settings[KV_DTYPE],
        "blockSize": settings.get(KV_BLOCK_SIZE),
        "prefixCaching": None if is_cached is None else {"mode": _mode(is_cached)},
        "offload": None if offloaded is None else {"cpu": {"memory": str(offloaded)}},
    }


def _section(**values: Any) -> Object | None:
    """A part of the status; None if nothing in it is set."""
    return None if set(values.values()) == {None} else values


def _only(values: Collection[Any]) -> Any:
    """The value that all variants have; None if they differ."""
    return next(iter(values)) if len(values) == 1 else None


def _mode(is_enabled: bool) -> str:
    return "Enabled" if is_enabled else "Disabled"
