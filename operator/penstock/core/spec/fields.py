"""The fields of an InferenceService's spec that make a revision, and those that do not.

From these follow a revision's hash, the fields that its ControllerRevision records, and those that
`rollout undo` restores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RevisionField:
    """Field, other than a setting, that changes pods, and so is part of the revision's hash.

    path: of the field in the spec. attribute: that of ServiceSpec with its value. default: the value that is
    left out of the hash; it never changes. REQUIRED: the field is always in the hash.
    """

    path: str
    attribute: str
    default: Any


REQUIRED = object()

# Paths and defaults must never change: revisions of running services are hashed with them. A new field's
# default is the behavior of the engines before it existed.
REVISION_FIELDS = (
    RevisionField("model.uri", "model_uri", REQUIRED),
    RevisionField("model.name", "model_name", REQUIRED),
    RevisionField("model.secretRef.name", "model_secret", None),
    RevisionField("model.cache.claimName", "model_cache_claim", None),
    RevisionField("model.cache.sizeLimit", "model_cache_bytes", None),
    RevisionField("model.cache.type", "model_cache_type", "Claim"),
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
)

# Sections of the spec whose fields are settings. A setting that the spec has changes pods, so its path and
# value are part of the hash.
SETTING_SECTIONS = ("engine", "runtime", "tracing")

# Values that are left out of the hash, by setting: a user who writes one down starts no rollout. Like paths
# and defaults above, they must never change.
FROZEN_DEFAULTS: Mapping[str, Any] = {
    "engine.dtype": "auto",
    "engine.memoryUtilizationPercent": 90,
    "engine.kvCache.blockSize": 16,
    "engine.kvCache.prefixCaching.mode": True,
    "engine.kvCache.events.mode": False,
    "engine.parallelism.pipeline": 1,
    "engine.parallelism.expert.mode": False,
    "engine.lora.sources": (),
    "engine.generation.source": "Model",
    "engine.scheduling.policy": "FCFS",
    "engine.extraArgs": (),
    "runtime.type": "Penstock",
    "runtime.custom.command": (),
    "runtime.custom.args": (),
}

# Settings whose default above does not hold for vLLM, which chooses by device and model: on the CPU, a block
# has 128 tokens.
VLLM_CHOOSES = ("engine.kvCache.blockSize", "engine.kvCache.prefixCaching.mode")

# Fields whose change makes no new revision. variants are among them: the kind of node changes no answers.
OTHER_FIELDS = (
    "variants", "objectives", "scaling", "replicas", "rollout", "prices",
    "runtime.custom.metrics.dialect",
)  # fmt: skip

# Attributes of ServiceSpec that no RevisionField names. settings are hashed by path.
NOT_HASHED = (
    "namespace", "name", "uid", "generation", "created_at", "scaling", "external_replicas", "rollout",
    "variants", "recorded_fields", "settings", "accelerator_memory_bytes", "source_variables",
    "node_cache_path",
)  # fmt: skip

# Top-level fields of the spec that a ControllerRevision records and `rollout undo` restores.
RECORDED = (
    *dict.fromkeys(field.path.partition(".")[0] for field in REVISION_FIELDS),
    *SETTING_SECTIONS,
)
