"""Lossless (de)serialization of frozen dataclasses to and from JSON values.

The declared field types determine how values are decoded, so a record needs no code of its own.
Supported are numbers, strings, booleans, None, dataclasses, tuples, frozen sets of one type, mappings with
string keys, literals, and unions; dataclasses of a union are distinguished by their field names.

Decoders are built once per type and cached: every gateway's report is decoded every two seconds.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]

SCALARS = frozenset({float, int, str, bool, NoneType})


class DecodeError(ValueError):
    """The input is not a valid record; the message gives the path and the cause."""


class _FieldError(Exception):
    """An invalid value. path: path components to it, innermost first."""

    def __init__(self, wrong: str) -> None:
        super().__init__(wrong)
        self.path: list[str] = []


def serialize(value: Any) -> Any:
    """Convert to JSON values: dataclasses and mappings to dicts, tuples and (sorted) sets to lists."""
    kind: Any = type(value)
    if kind in SCALARS:
        return value
    if names := _names(kind):
        return {name: serialize(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: serialize(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [serialize(each) for each in value]
    return value


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()


def deserialize(kind: type[T], value: Any, where: str = "") -> T:
    """Decode a record of type `kind` from JSON values.

    where: prefix of error messages; by default the type's name. Raises DecodeError for unknown or missing
    fields, wrong types and numbers that are not finite.
    """
    of: Any = kind
    try:
        made: T = _reader(of)(value)
    except _FieldError as wrong:
        path = "".join(reversed(wrong.path))
        raise DecodeError(f"{where or kind.__name__}{path} {wrong}") from None
    return made


@cache
def _reader(kind: Any) -> Reader:
    origin = get_origin(kind)
    if origin is Literal:
        return _literal(get_args(kind))
    if origin in (UnionType, Union):
        return _union(get_args(kind))
    if is_dataclass(kind):
        return _record(kind)
    if origin is tuple:
        first, *others = get_args(kind)
        return _tuple(first) if others == [Ellipsis] else _fixed_tuple((first, *others))
    if origin is frozenset:
        every = _tuple(get_args(kind)[0])
        return lambda value: frozenset(every(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(get_args(kind)[1])
    if kind is float:
        return _float
    if kind in SCALARS:
        return _scalar(kind)
    raise TypeError(f"records hold no {kind}")


def _wrong_value(value: Any) -> _FieldError:
    return _FieldError(f"is {str(value)[:60]!r}")


def _float(value: Any) -> float:
    if type(value) not in (float, int):
        raise _wrong_value(value)
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of float
        raise _wrong_value(value) from None
    if not math.isfinite(number):
        raise _wrong_value(value)
    return number


def _scalar(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _wrong_value(value)
        return value

    return read


def _literal(options: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if value not in options:
            raise _wrong_value(value)
        return value

    return read


def _tuple(of: Any) -> Reader:
    read_one = _reader(of)
    return lambda value: _read_items(repeat(read_one), _list(value))


def _fixed_tuple(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(kind) for kind in kinds]

    def read(value: Any) -> tuple[Any, ...]:
        if len(_list(value)) != len(readers):
            raise _FieldError(f"has {len(value)} of {len(readers)} parts")
        return _read_items(readers, value)

    return read


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong_value(value)
    return value


def _read_items(readers: Iterable[Reader], values: list[Any]) -> tuple[Any, ...]:
    made: list[Any] = []
    try:
        for read_one, each in zip(readers, values, strict=False):
            made.append(read_one(each))
    except _FieldError as wrong:
        wrong.path.append(f"[{len(made)}]")
        raise
    return tuple(made)


def _mapping(of: Any) -> Reader:
    read_one = _reader(of)

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong_value(value)
        made = {}
        key = ""
        try:
            for key, each in value.items():
                made[key] = read_one(each)
        except _FieldError as wrong:
            wrong.path.append(f".{key}")
            raise
        return made

    return read


def _record(kind: Any) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong_value(value)
        readers, required = _readers(kind), _required(kind)
        if unknown := value.keys() - readers.keys():
            raise _FieldError(f"has no {sorted(unknown)[0]}")
        if missing := required - value.keys():
            raise _FieldError(f"lacks {sorted(missing)[0]}")
        made = {}
        name = ""
        try:
            for name, each in value.items():
                made[name] = readers[name](each)
        except _FieldError as wrong:
            wrong.path.append(f".{name}")
            raise
        return kind(**made)

    return read


def _union(options: tuple[Any, ...]) -> Reader:
    """Decode as the first of the types that matches the value."""
    matchers = [(_matcher(kind), _reader(kind)) for kind in options]

    def read(value: Any) -> Any:
        for is_of, read_one in matchers:
            if is_of(value):
                return read_one(value)
        raise _FieldError(f"is none of {' | '.join(kind.__name__ for kind in options)}")

    return read


def _matcher(kind: Any) -> Callable[[Any], bool]:
    record: Any = kind
    if is_dataclass(kind):
        return lambda value: (
            isinstance(value, dict) and _required(record) <= value.keys() <= _readers(record).keys()
        )
    if kind is NoneType:
        return lambda value: value is None
    return lambda value: value is not None and not isinstance(value, dict)


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    types = get_type_hints(kind)
    return {name: _reader(types[name]) for name in _names(kind)}


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    )
