"""Computes the revision of a service: a hash of the settings that change its pods."""

import hashlib
import json

from penstock.core.spec.fields import hashed_document
from penstock.core.spec.service import ServiceSpec


def revision_of(spec: ServiceSpec) -> str:
    """The revision, 8 hexadecimal digits; equal for specs that result in the same pods."""
    document = json.dumps(hashed_document(spec), sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()[:8]
