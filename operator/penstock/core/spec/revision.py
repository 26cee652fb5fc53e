"""Computes the revision of a service: a hash of the settings that change its pods."""

import hashlib
import json
from dataclasses import asdict

from penstock.core.spec.service import ServiceSpec

# Fields that do not change pods: identity, bookkeeping, scaling, rollout. Variants are excluded because
# the kind of node does not change answers, so a new variant needs no rollout.
_SHAPELESS = {
    "namespace", "name", "uid", "generation", "created_at", "scaling", "external_replicas",
    "rollout", "shape", "variants",
}  # fmt: skip


def revision_of(spec: ServiceSpec) -> str:
    """The revision, 8 hexadecimal digits; equal for specs that result in the same pods."""
    shape = {name: value for name, value in asdict(spec).items() if name not in _SHAPELESS}
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:8]
