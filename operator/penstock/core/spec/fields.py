"""The fields of an InferenceService's spec that make a revision, and those that do not.

From this list follow a revision's hash, the fields that its ControllerRevision records, and those that
`rollout undo` restores.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


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
    """Raise ValueError for paths that are not settings."""
    if unknown := set(paths) - SETTINGS:
        raise ValueError(f"{', '.join(sorted(unknown))}: not in REVISION_FIELDS")
