"""Which settings make a pod another pod."""

import hashlib
import json
from dataclasses import asdict

from penstock.core.spec.service import ServiceSpec

# Who the service is, its bookkeeping, the bounds of scaling and the way of a rollout change
# no pod. What it may run on changes no answer: a new kind of nodes is nothing to be judged.
_SHAPELESS = {
    "namespace", "name", "uid", "generation", "created_at", "scaling", "external_replicas",
    "rollout", "shape", "variants",
}  # fmt: skip


def revision_of(spec: ServiceSpec) -> str:
    """8 hexadecimal digits, the same for specs that make the same pods."""
    shape = {name: value for name, value in asdict(spec).items() if name not in _SHAPELESS}
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:8]
