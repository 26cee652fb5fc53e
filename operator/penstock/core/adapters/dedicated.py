"""InferenceServices that are the dedicated pool of one adapter: their names, and how they are recognized."""

import hashlib

from penstock.core.spec.service import GROUP, Object

# Longest name of an InferenceService, and length of the hash that makes a shortened one unique.
MAX_NAME_LENGTH, HASH_LENGTH = 40, 8
KIND = "LoraAdapter"
ADAPTER_LABEL = f"{GROUP}/adapter"


def dedicated_name(service: str, adapter: str) -> str:
    """Name of an adapter's dedicated pool. service: of the adapter's spec.

    SERVICE-ADAPTER; with a hash if that is too long, or if the adapter's name has a dot.
    """
    name = f"{service}-{adapter}"
    if len(name) <= MAX_NAME_LENGTH and "." not in name:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:HASH_LENGTH]
    kept = name.replace(".", "-")[: MAX_NAME_LENGTH - HASH_LENGTH - 1].rstrip("-")
    return f"{kept}-{digest}"


def adapter_of(service: Object) -> str:
    """Name of the adapter whose dedicated pool a service is; empty for other services."""
    owner = _controller(service)
    return str(owner["name"]) if owner.get("kind") == KIND else ""


def is_pool_of(service: Object, uid: str) -> bool:
    """Whether a service is the dedicated pool of the adapter with this uid."""
    owner = _controller(service)
    return owner.get("kind") == KIND and owner.get("uid") == uid


def _controller(body: Object) -> Object:
    """The owner reference of the controller; empty if there is none, or one of another API group."""
    for owner in body["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and str(owner.get("apiVersion")).startswith(f"{GROUP}/"):
            found: Object = owner
            return found
    return {}
