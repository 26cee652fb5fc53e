"""Frozen dataclasses as JSON's own values, and back to the same: no number loses a bit.

The types that a class declares say how its fields are read, so a record needs no code of its own:
numbers, strings, booleans, None, other dataclasses, tuples and frozen sets of one type, mappings of
strings, literals, and unions of them in which dataclasses are told apart by their fields.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Unreadable(ValueError):
    """What was read is not such a record; the text says where, and why."""


def to_plain(value: Any) -> Any:
    """Dataclasses and mappings become dicts, tuples and sets lists; sets are sorted."""
    if is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [to_plain(each) for each in value]
    return value


def from_plain(kind: type[T], value: Any, where: str = "") -> T:
    """The record of this type. Fields that it does not know, or that are not finite, are refused.

    Raises Unreadable.
    """
    made: T = _read(kind, value, where or kind.__name__)
    return made


def _read(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin is Literal:
        return _checked(value in get_args(kind), value, where)
    if origin in (UnionType, Union):
        return _read(_option(kind, value, where), value, where)
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    if origin is tuple:
        return _tuple(get_args(kind), value, where)
    if origin is frozenset:
        _checked(isinstance(value, list), value, where)
        return frozenset(_read(get_args(kind)[0], each, where) for each in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _checked(isinstance(value, dict), value, where)
        of = get_args(kind)[1]
        return {key: _read(of, each, f"{where}.{key}") for key, each in value.items()}
    return _scalar(kind, value, where)


def _scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(_checked(is_number and math.isfinite(value), value, where))
    if kind is int:
        return _checked(isinstance(value, int) and not isinstance(value, bool), value, where)
    if kind in (str, bool, NoneType):
        return _checked(isinstance(value, kind), value, where)
    raise TypeError(f"{where}: records hold no {kind}")


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    _checked(isinstance(value, dict), value, where)
    types: dict[str, Any] = _types(kind)
    if unknown := value.keys() - types.keys():
        raise Unreadable(f"{where} has no {sorted(unknown)[0]}")
    if missing := _required(kind) - value.keys():
        raise Unreadable(f"{where} lacks {sorted(missing)[0]}")
    return kind(**{name: _read(types[name], value[name], f"{where}.{name}") for name in value})


def _tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    _checked(isinstance(value, list), value, where)
    if kinds[-1] is Ellipsis:
        return tuple(_read(kinds[0], each, f"{where}[{i}]") for i, each in enumerate(value))
    if len(kinds) != len(value):
        raise Unreadable(f"{where} has {len(value)} of {len(kinds)} parts")
    return tuple(
        _read(kind, each, f"{where}[{i}]")
        for i, (kind, each) in enumerate(zip(kinds, value, strict=True))
    )


def _option(union: Any, value: Any, where: str) -> Any:
    """The part of the union that the value is of."""
    options: tuple[Any, ...] = get_args(union)
    for kind in options:
        if _is_record(kind):
            is_of = isinstance(value, dict) and _required(kind) <= value.keys() <= set(_types(kind))
        elif kind is NoneType:
            is_of = value is None
        else:
            is_of = value is not None and not isinstance(value, dict)
        if is_of:
            return kind
    raise Unreadable(f"{where} is none of {' | '.join(k.__name__ for k in options)}")


def _checked(holds: bool, value: Any, where: str) -> Any:
    if not holds:
        raise Unreadable(f"{where} is {str(value)[:60]!r}")
    return value


def _is_record(kind: Any) -> bool:
    return is_dataclass(kind)


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    )
