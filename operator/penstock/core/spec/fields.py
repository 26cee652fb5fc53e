"""The fields of an InferenceService's spec that make a revision, and the others.

The one list of them: the revision's hash, the fields that `rollout undo` restores, and the record of a
revision in its ControllerRevision follow from it.
"""

from dataclasses import asdict, dataclass
from typing import Any

from penstock.core.formats.quantity import canonical_quantity
from penstock.core.spec.service import ServiceSpec


@dataclass(frozen=True, slots=True)
class RevisionField:
    """Field of the spec that changes pods, and so is part of the revision's hash.

    path: of the field in the spec. attribute: of ServiceSpec, which has its value. default: the value in
    v1alpha1, which never changes; a field with this value is left out of the hash. REQUIRED: the field is
    always in the hash.
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
    RevisionField("engine.maxModelLen", "max_model_len", None),
    RevisionField("engine.maxNumSeqs", "max_num_seqs", 64),
    RevisionField("engine.maxNumBatchedTokens", "max_num_batched_tokens", 512),
    RevisionField("engine.dtype", "dtype", "auto"),
    RevisionField("engine.seed", "seed", None),
    RevisionField("engine.memoryUtilizationPercent", "memory_utilization_percent", 90),
    RevisionField("engine.kvCache.memory", "kv_memory_bytes", None),
    RevisionField("engine.kvCache.blockSize", "block_size", 16),
    RevisionField("engine.kvCache.prefixCaching.mode", "prefix_caching", True),
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

# Fields whose change makes no new revision. Variants: the kind of node changes no answers.
OTHER_FIELDS = ("variants", "objectives", "scaling", "replicas", "rollout")

# Attributes of ServiceSpec that are made of OTHER_FIELDS fields, of the metadata, or for the record.
NOT_HASHED = (
    "namespace", "name", "uid", "generation", "created_at", "scaling", "external_replicas", "rollout",
    "variants", "shape",
)  # fmt: skip

# Top-level fields of the spec that a ControllerRevision records and `rollout undo` restores.
RECORDED = tuple(dict.fromkeys(field.path.partition(".")[0] for field in REVISION_FIELDS))


def hashed_document(spec: ServiceSpec) -> dict[str, Any]:
    """The values that the user's spec sets and that differ from the frozen defaults, by path.

    A field that is not set is left out whatever the operator takes for it, so a better default of a later
    version changes no revision: running pods keep the template that was recorded with them.
    """
    values = _values(spec)
    return {
        field.path: values[field.attribute]
        for field in REVISION_FIELDS
        if values[field.attribute] != field.default and _is_set(field, spec)
    }


def _values(spec: ServiceSpec) -> dict[str, Any]:
    """The spec's attributes; quantities of resources do not depend on how they are written."""
    values = asdict(spec)
    for kind in ("requests", "limits"):
        quantities = values["resources"][kind]
        values["resources"][kind] = {
            name: canonical_quantity(each) for name, each in quantities.items()
        }
    return values


def _is_set(field: RevisionField, spec: ServiceSpec) -> bool:
    """Whether the user's spec has the field. Without the user's spec every field counts as set."""
    if field.default is REQUIRED or not spec.shape:
        return True
    value: Any = spec.shape
    for name in field.path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value is not None
