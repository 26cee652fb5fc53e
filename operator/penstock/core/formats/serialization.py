"""Frozen dataclasses as JSON's own values, and back to the same: no number loses a bit.

The types that a class declares say how its fields are read, so a record needs no code of its own:
numbers, strings, booleans, None, other dataclasses, tuples and frozen sets of one type, mappings of
strings, literals, and unions of them in which dataclasses are told apart by their fields.

How a type is read is worked out once: a gateway's feed is read every two seconds, of each gateway.
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


class Unreadable(ValueError):
    """What was read is not such a record; the text says where, and why."""


class _Misread(Exception):
    """path: to what is wrong, from the inside out."""

    def __init__(self, wrong: str) -> None:
        super().__init__(wrong)
        self.path: list[str] = []


def to_plain(value: Any) -> Any:
    """Dataclasses and mappings become dicts, tuples and sets lists; sets are sorted."""
    kind: Any = type(value)
    if kind in SCALARS:
        return value
    if names := _names(kind):
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [to_plain(each) for each in value]
    return value


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()


def from_plain(kind: type[T], value: Any, where: str = "") -> T:
    """The record of this type. Fields that it does not know, or that are not finite, are refused.

    Raises Unreadable.
    """
    of: Any = kind
    try:
        made: T = _reader(of)(value)
    except _Misread as wrong:
        path = "".join(reversed(wrong.path))
        raise Unreadable(f"{where or kind.__name__}{path} {wrong}") from None
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
        return _tuple(first) if others == [Ellipsis] else _parts((first, *others))
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


def _is(value: Any) -> _Misread:
    return _Misread(f"is {str(value)[:60]!r}")


def _float(value: Any) -> float:
    if type(value) not in (float, int):
        raise _is(value)
    try:
        number = float(value)
    except OverflowError:  # of a whole number
        raise _is(value) from None
    if not math.isfinite(number):
        raise _is(value)
    return number


def _scalar(kind: type) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _is(value)
        return value

    return read


def _literal(options: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        if value not in options:
            raise _is(value)
        return value

    return read


def _tuple(of: Any) -> Reader:
    read_one = _reader(of)
    return lambda value: _each(repeat(read_one), _list(value))


def _parts(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(kind) for kind in kinds]

    def read(value: Any) -> tuple[Any, ...]:
        if len(_list(value)) != len(readers):
            raise _Misread(f"has {len(value)} of {len(readers)} parts")
        return _each(readers, value)

    return read


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _is(value)
    return value


def _each(readers: Iterable[Reader], values: list[Any]) -> tuple[Any, ...]:
    made: list[Any] = []
    try:
        for read_one, each in zip(readers, values, strict=False):
            made.append(read_one(each))
    except _Misread as wrong:
        wrong.path.append(f"[{len(made)}]")
        raise
    return tuple(made)


def _mapping(of: Any) -> Reader:
    read_one = _reader(of)

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _is(value)
        made = {}
        key = ""
        try:
            for key, each in value.items():
                made[key] = read_one(each)
        except _Misread as wrong:
            wrong.path.append(f".{key}")
            raise
        return made

    return read


def _record(kind: Any) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _is(value)
        readers, required = _readers(kind), _required(kind)
        if unknown := value.keys() - readers.keys():
            raise _Misread(f"has no {sorted(unknown)[0]}")
        if missing := required - value.keys():
            raise _Misread(f"lacks {sorted(missing)[0]}")
        made = {}
        name = ""
        try:
            for name, each in value.items():
                made[name] = readers[name](each)
        except _Misread as wrong:
            wrong.path.append(f".{name}")
            raise
        return kind(**made)

    return read


def _union(options: tuple[Any, ...]) -> Reader:
    """Reads as the first of them that the value is of."""
    telling = [(_telling(kind), _reader(kind)) for kind in options]

    def read(value: Any) -> Any:
        for is_of, read_one in telling:
            if is_of(value):
                return read_one(value)
        raise _Misread(f"is none of {' | '.join(kind.__name__ for kind in options)}")

    return read


def _telling(kind: Any) -> Callable[[Any], bool]:
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
    return {name: _reader(of) for name, of in get_type_hints(kind).items()}


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    )
