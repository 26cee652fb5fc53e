"""Computes the revision of a service: a hash of the settings that change its pods."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from penstock.core.formats.quantity import canonical_quantity
from penstock.core.spec.fields import (
    FROZEN_DEFAULTS,
    REQUIRED,
    REVISION_FIELDS,
    VLLM_CHOOSES,
    RevisionField,
)
from penstock.core.spec.resources import ResourceSpec
from penstock.core.spec.service import ServiceSpec
from penstock.core.spec.settings import VLLM


def revision_of(spec: ServiceSpec) -> str:
    """The revision, 8 hexadecimal digits; equal for specs that result in the same pods."""
    document = json.dumps(hashed_document(spec), sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()[:8]


def hashed_document(spec: ServiceSpec) -> dict[str, Any]:
    """The values that the user's spec sets and that differ from the frozen defaults, by path.

    A field that is not set is left out, whatever default the operator has for it. So a better default in a
    later version makes no new revision: running pods keep their recorded template.
    """
    fields = {
        field.path: value
        for field in REVISION_FIELDS
        if (value := _value(field, spec)) != field.default and _is_set(field, spec)
    }
    return fields | {
        path: value for path, value in spec.settings.items() if value != _frozen_default(path, spec)
    }


def _frozen_default(path: str, spec: ServiceSpec) -> Any:
    """The value of a setting that is left out of the hash; None: every value is in it."""
    vllm_chooses = spec.settings.get("runtime.type") == VLLM and path in VLLM_CHOOSES
    return None if vllm_chooses else FROZEN_DEFAULTS.get(path)


def _value(field: RevisionField, spec: ServiceSpec) -> Any:
    """The field's value in base units. Quantities of resources do not depend on how they are written."""
    value = getattr(spec, field.attribute)
    if not isinstance(value, ResourceSpec):
        return value
    resources = asdict(value)
    for kind in ("requests", "limits"):
        resources[kind] = {name: canonical_quantity(each) for name, each in resources[kind].items()}
    return resources


def _is_set(field: RevisionField, spec: ServiceSpec) -> bool:
    """Whether the user's spec has the field; True if the spec is not known."""
    if field.default is REQUIRED or not spec.recorded_fields:
        return True
    value: Any = spec.recorded_fields
    for name in field.path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value is not None
