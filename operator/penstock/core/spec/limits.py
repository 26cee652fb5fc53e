"""A tree of limits on the fields of an object, and the check of a value against it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NOT_ALLOWED = " is not allowed in a template: remove it"
NOT_A_MAP = " must be a map"
NOT_A_LIST = " must be a list"


@dataclass(frozen=True, slots=True)
class AnyValue:
    """A field that may have any value."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on a value.

    holds: the condition in Python. cel: the same in CEL, with VALUE for the value. must: what the value must
    be or do; it completes the sentence that begins with the field's path.
    """

    holds: Callable[[Any], bool]
    cel: str
    must: str


@dataclass(frozen=True, slots=True)
class Fields:
    """A map with these fields and no others.

    required: fields that must be there. checks: conditions on the map as a whole. is_removable: whether null,
    which removes the map from the pod, is allowed.
    """

    fields: "Mapping[str, Limit]"
    required: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    is_removable: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A list of maps. key: field whose value names an item in paths; empty: items have no names."""

    item: Fields
    key: str = ""
    is_removable: bool = False


Limit = AnyValue | Check | Fields | Items


def one_of(*values: str | bool) -> Check:
    """Check that the value is one of these."""
    written = [str(each).lower() if isinstance(each, bool) else f"'{each}'" for each in values]
    words = [str(each).lower() if isinstance(each, bool) else each for each in values]
    return Check(
        lambda value: any(type(value) is type(each) and value == each for each in values),
        f"VALUE in [{', '.join(written)}]",
        f"must be {' or '.join(words)}: change or remove it",
    )


def violations(value: Any, limit: Limit, path: str) -> Iterator[str]:
    """Yield a sentence for each part of the value that the limit does not allow. path: of the value."""
    match limit:
        case AnyValue():
            return
        case Check():
            if not limit.holds(value):
                yield f"{path} {limit.must}"
        case Fields():
            if value is None and limit.is_removable:
                return
            if isinstance(value, dict):
                yield from _map_violations(value, limit, path)
            else:
                yield path + NOT_A_MAP
        case Items():
            if value is None and limit.is_removable:
                return
            if isinstance(value, list):
                for item in value:
                    yield from violations(item, limit.item, f"{path}[{_name(item, limit.key)}]")
            else:
                yield path + NOT_A_LIST


def _map_violations(value: dict[Any, Any], limit: Fields, path: str) -> Iterator[str]:
    """Yield the violations in a map, its fields first: `checks` need fields of the right type."""
    for name in value:
        if name not in limit.fields:
            yield f"{path}.{name}{NOT_ALLOWED}"
    for name in limit.required:
        if name not in value:
            yield f"{path}{missing(name)}"
    found = [
        each
        for name, child in limit.fields.items()
        if name in value
        for each in violations(value[name], child, f"{path}.{name}")
    ]
    yield from found
    if not found and all(name in value for name in limit.required):
        yield from (f"{path} {check.must}" for check in limit.checks if not check.holds(value))


def missing(name: str) -> str:
    """The end of the sentence about a map without a required field."""
    return f" must have the field {name}"


def _name(item: Any, key: str) -> str:
    name = item.get(key) if key and isinstance(item, dict) else None
    return name if isinstance(name, str) else ""
