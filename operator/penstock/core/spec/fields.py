"""The fields of an InferenceService's spec that make a revision, and those that do not.

From this list follow a revision's hash, the fields that its ControllerRevision records, and those that
`rollout undo` restores.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from penstock.core.formats.quantity import canonical_quantity
from penstock.core.spec.resources import ResourceSpec
from penstock.core.spec.service import ServiceSpec
from penstock.core.spec.settings import VLLM


@dataclass(frozen=True, slots=True)
class RevisionField:
    """Field of the spec that changes pods, and so is part of the revision's hash.

    path: of the field in the spec. attribute: that of ServiceSpec with its value; empty: the value is in
    `settings`, under the path. default: the value that is left out of the hash; it never changes. REQUIRED:
    the field is always in the hash.
    """

    path: str
    attribute: str = ""
    default: Any = None


REQUIRED = object()

# Paths and defaults must never change: revisions of running services are hashed with them. A new field's
# default is the behavior of the engines before it existed.
REVISION_FIELDS = (
    RevisionField("model.uri", "model_uri", REQUIRED),
    RevisionField("model.name", "model_name", REQUIRED),
    RevisionField(
        "resources",
        "resources",
        {
            "requests": {"cpu": "1", "memory": "2Gi"},
            "limits": {"cpu": "1", "memory": "2Gi"},
            "claims": (),
        },
    ),
    RevisionField("terminationGracePeriodSeconds", "termination_grace_s", 45),
    RevisionField("template", "template", {}),
    RevisionField("engine.maxModelLen"),
    RevisionField("engine.maxNumSeqs"),
    RevisionField("engine.maxNumBatchedTokens"),
    RevisionField("engine.dtype", default="auto"),
    RevisionField("engine.seed"),
    RevisionField("engine.memoryUtilizationPercent", default=90),
    RevisionField("engine.quantization.method"),
    RevisionField("engine.kvCache.memory"),
    RevisionField("engine.kvCache.blockSize", default=16),
    RevisionField("engine.kvCache.prefixCaching.mode", default=True),
    RevisionField("engine.kvCache.dtype"),
    RevisionField("engine.kvCache.offload.cpu.memory"),
    RevisionField("engine.parallelism.tensor"),
    RevisionField("engine.parallelism.pipeline", default=1),
    RevisionField("engine.parallelism.expert.mode", default=False),
    RevisionField("engine.speculative.method"),
    RevisionField("engine.speculative.numSpeculativeTokens"),
    RevisionField("engine.speculative.model.uri"),
    RevisionField("engine.speculative.ngram.promptLookupMin"),
    RevisionField("engine.speculative.ngram.promptLookupMax"),
    RevisionField("engine.lora.maxAdapters"),
    RevisionField("engine.lora.maxRank"),
    RevisionField("engine.lora.maxCPUAdapters"),
    RevisionField("engine.lora.sources", default=()),
    RevisionField("engine.generation.source", default="Model"),
    RevisionField("engine.generation.defaults.temperature"),
    RevisionField("engine.generation.defaults.topP"),
    RevisionField("engine.generation.defaults.topK"),
    RevisionField("engine.generation.defaults.minP"),
    RevisionField("engine.generation.defaults.repetitionPenalty"),
    RevisionField("engine.generation.defaults.maxTokens"),
    RevisionField("engine.parsers.toolCall"),
    RevisionField("engine.parsers.reasoning"),
    RevisionField("engine.parsers.chatTemplate.configMapKeyRef.name"),
    RevisionField("engine.parsers.chatTemplate.configMapKeyRef.key"),
    RevisionField("engine.scheduling.policy", default="FCFS"),
    RevisionField("engine.scheduling.maxQueuedRequests"),
    RevisionField("engine.scheduling.maxQueuedTokens"),
    RevisionField("engine.scheduling.requestTimeout"),
    RevisionField("engine.extraArgs", default=()),
    RevisionField("runtime.type", default="Penstock"),
    RevisionField("runtime.vllm.image"),
    RevisionField("runtime.custom.image"),
    RevisionField("runtime.custom.command", default=()),
    RevisionField("runtime.custom.args", default=()),
    RevisionField("runtime.custom.readinessPath"),
    RevisionField("tracing.exporterEndpoint"),
    RevisionField("tracing.sampler"),
    RevisionField("tracing.samplerArg"),
)

# Paths of the settings of engine, runtime and tracing.
SETTINGS = frozenset(field.path for field in REVISION_FIELDS if not field.attribute)

# Fields whose default above does not hold for vLLM, which chooses by device and model: on the CPU, a block
# has 128 tokens.
VLLM_CHOOSES = ("engine.kvCache.blockSize", "engine.kvCache.prefixCaching.mode")

# Fields whose change makes no new revision. variants are among them: the kind of node changes no answers.
OTHER_FIELDS = (
    "variants", "objectives", "scaling", "replicas", "rollout", "runtime.custom.metrics.dialect",
)  # fmt: skip

# Attributes of ServiceSpec that no RevisionField names.
NOT_HASHED = (
    "namespace", "name", "uid", "generation", "created_at", "scaling", "external_replicas", "rollout",
    "variants", "recorded_fields", "settings", "accelerator_memory_bytes",
)  # fmt: skip

# Top-level fields of the spec that a ControllerRevision records and `rollout undo` restores.
RECORDED = tuple(dict.fromkeys(field.path.partition(".")[0] for field in REVISION_FIELDS))


def check_settings(paths: Collection[str]) -> None:
    """Raise ValueError if a path is none of a setting's."""
    if unknown := set(paths) - SETTINGS:
        raise ValueError(f"{', '.join(sorted(unknown))}: not in REVISION_FIELDS")


def hashed_document(spec: ServiceSpec) -> dict[str, Any]:
    """The values that the user's spec sets and that differ from the frozen defaults, by path.

    A field that is not set is left out, whatever default the operator has for it. So a better default in a
    later version makes no new revision: running pods keep their recorded template.
    """
    return {
        field.path: value
        for field in REVISION_FIELDS
        if (value := _value(field, spec)) != _default(field, spec) and _is_set(field, spec)
    }


def _default(field: RevisionField, spec: ServiceSpec) -> Any:
    """The value that is left out of the hash."""
    vllm_chooses = spec.settings.get("runtime.type") == VLLM and field.path in VLLM_CHOOSES
    return None if vllm_chooses else field.default


def _value(field: RevisionField, spec: ServiceSpec) -> Any:
    """The field's value in base units. Quantities of resources do not depend on how they are written."""
    if not field.attribute:
        return spec.settings.get(field.path, _default(field, spec))
    value = getattr(spec, field.attribute)
    if not isinstance(value, ResourceSpec):
        return value
    resources = asdict(value)
    for kind in ("requests", "limits"):
        resources[kind] = {name: canonical_quantity(each) for name, each in resources[kind].items()}
    return resources


def _is_set(field: RevisionField, spec: ServiceSpec) -> bool:
    """Whether the user's spec has the field; True if the spec is not known.

    `settings` have no other fields than those that are set, so only attributes are looked up.
    """
    if field.default is REQUIRED or not spec.recorded_fields or not field.attribute:
        return True
    value: Any = spec.recorded_fields
    for name in field.path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value is not None
