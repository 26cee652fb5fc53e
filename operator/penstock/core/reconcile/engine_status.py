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
    PENSTOCK,
    Settings,
)

# A number type that the engine chooses.
AUTO = "auto"
# Defaults of Penstock's engine that no device and no model changes. vLLM has others for some.
PENSTOCK_DEFAULTS: Settings = {
    "engine.kvCache.blockSize": DEFAULT_BLOCK_SIZE,
    "engine.kvCache.prefixCaching.mode": True,
}
DEFAULTS: Settings = {
    "engine.dtype": AUTO,
    "engine.kvCache.dtype": AUTO,
    "engine.memoryUtilizationPercent": DEFAULT_MEMORY_UTILIZATION_PERCENT,
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
    if spec.settings.get("runtime.type") == CUSTOM:
        return None
    settings = _effective(spec.settings, preflights, previous.get("engine") or {}, readings)
    return {
        "device": _only({placed.resources.device for placed in spec.placed.values()}),
        "maxModelLen": settings.get("engine.maxModelLen"),
        "maxNumSeqs": settings.get("engine.maxNumSeqs"),
        "maxNumBatchedTokens": settings.get("engine.maxNumBatchedTokens"),
        "dtype": settings["engine.dtype"],
        "memoryUtilizationPercent": settings["engine.memoryUtilizationPercent"],
        "quantization": _section(method=settings.get("engine.quantization.method")),
        "kvCache": _kv_cache(settings),
        "parallelism": {
            "tensor": _only({tensor_ranks(placed) for placed in spec.placed.values()}),
            "pipeline": settings.get("engine.parallelism.pipeline", 1),
            "expert": {"mode": _mode(settings.get("engine.parallelism.expert.mode", False))},
        },
        "speculative": _section(
            method=settings.get("engine.speculative.method"),
            numSpeculativeTokens=settings.get("engine.speculative.numSpeculativeTokens"),
        ),
    }


def _effective(
    wanted: Settings,
    preflights: Collection[ObservedPod],
    before: Object,
    readings: Collection[EngineReading],
) -> Settings:
    """The settings of the spec over those that engines have or choose. before: as in `_derived`."""
    is_penstock = wanted.get("runtime.type", PENSTOCK) == PENSTOCK
    found = _measured(readings)
    if is_penstock:
        found = {**PENSTOCK_DEFAULTS, **_derived(preflights, before), **found}
    settings = {**DEFAULTS, **found, **wanted}
    if settings["engine.dtype"] in (None, AUTO):
        settings["engine.dtype"] = found.get("engine.dtype") or AUTO
    if settings["engine.kvCache.dtype"] == AUTO:
        of_weights = settings["engine.dtype"] if is_penstock else AUTO
        settings["engine.kvCache.dtype"] = (
            found.get("engine.kvCache.dtype", AUTO) if of_weights == AUTO else of_weights
        )
    return settings


def _measured(readings: Collection[EngineReading]) -> Settings:
    """Settings that all engines report alike."""
    found = {
        "engine.kvCache.blockSize": _only({each.cache.block_size for each in readings}),
        "engine.kvCache.dtype": _only({each.cache.dtype for each in readings}),
        "engine.kvCache.prefixCaching.mode": _only(
            {each.cache.prefix_caching for each in readings}
        ),
        "engine.maxNumSeqs": _only({each.max_num_seqs for each in readings}),
        "engine.maxNumBatchedTokens": _only({each.max_num_batched_tokens for each in readings}),
    }
    return {path: value for path, value in found.items() if value is not None}


def _derived(preflights: Collection[ObservedPod], before: Object) -> Settings:
    """Settings that the engine derives from the model, by the preflights, else by the previous status.

    before: the engine in the previous status. Limits of a step that are unknown stay what they were, as a
    CRD from before they could be absent refuses a status without them.
    """
    reported = _reported(preflights)
    limits = {
        "engine.maxNumSeqs": reported.get("engine.maxNumSeqs") or before.get("maxNumSeqs"),
        "engine.maxNumBatchedTokens": (
            reported.get("engine.maxNumBatchedTokens") or before.get("maxNumBatchedTokens")
        ),
    }
    kept = {
        "engine.maxModelLen": before.get("maxModelLen"),
        "engine.dtype": before.get("dtype"),
        "engine.quantization.method": (before.get("quantization") or {}).get("method"),
    }
    return {**kept, **reported, **limits}


def _reported(preflights: Collection[ObservedPod]) -> Settings:
    """The settings that preflights report. A value is None if they differ in it."""
    results = [found.settings for each in preflights if (found := preflight_result(each))]
    names = {name for settings in results for name in settings}
    return {name: _only({settings.get(name) for settings in results}) for name in names}


def _kv_cache(settings: Settings) -> Object:
    memory = settings.get("engine.kvCache.memory")
    offloaded = settings.get("engine.kvCache.offload.cpu.memory")
    is_cached = settings.get("engine.kvCache.prefixCaching.mode")
    return {
        "memory": None if memory is None else str(memory),
        "dtype": settings["engine.kvCache.dtype"],
        "blockSize": settings.get("engine.kvCache.blockSize"),
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
