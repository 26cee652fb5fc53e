"""Fields of the spec that differ between two revisions."""

from collections.abc import Iterable
from typing import Any

from penstock.core.spec.fields import FROZEN_DEFAULTS, OTHER_FIELDS, REVISION_FIELDS
from penstock.core.spec.history import changed_paths
from penstock.core.spec.revision import hashed_document
from penstock.core.spec.service import ServiceSpec


def changed_fields(before: ServiceSpec, after: ServiceSpec) -> tuple[str, ...]:
    """Paths of the fields that two revisions write differently, such as engine.quantization.method.

    A field that only one of them writes, with the default that the other has without it, is left out. A
    field that makes no revision counts as written.
    """
    written = changed_paths(before.recorded_fields, after.recorded_fields)
    effective = changed_paths(_values(before), _values(after))
    return tuple(path for path in written if _is_among(path, effective) or path in OTHER_FIELDS)


def _values(spec: ServiceSpec) -> dict[str, Any]:
    """The values of all fields by path, with the frozen defaults of those that are not set."""
    defaults = {field.path: field.default for field in REVISION_FIELDS}
    return {**defaults, **FROZEN_DEFAULTS, **hashed_document(spec)}


def _is_among(path: str, others: Iterable[str]) -> bool:
    """Whether a path is one of the others, or above or below one."""
    return any(
        f"{each}.".startswith(f"{path}.") or f"{path}.".startswith(f"{each}.") for each in others
    )
