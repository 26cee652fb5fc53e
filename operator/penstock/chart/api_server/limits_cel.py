"""Writes limits on the fields of an object as CEL validations of a ValidatingAdmissionPolicy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.core.spec.limits import (
    NOT_A_LIST,
    NOT_A_MAP,
    NOT_ALLOWED,
    AnyValue,
    Check,
    Fields,
    Items,
    Limit,
    missing,
)
from penstock.core.spec.service import Object

# Names of the allowed fields of a map -> name of the policy's variable that lists them.
FieldLists = Mapping[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition on a value, and the message about a value that does not meet it.

    holds: CEL expression, true if the value is allowed. sentence: CEL expression of the message, without
    the path in front of it. is_structural: whether it checks a type or a required field. Only after these
    conditions can messages contain the name of an item.
    """

    holds: str
    sentence: str
    is_structural: bool = False


def field_lists(limit: Limit, name: str) -> FieldLists:
    """Names of the variables that list the allowed fields of each map. Equal lists share a variable.

    name: that of the outermost map's variable, with which the others begin.
    """
    found: dict[tuple[str, ...], str] = {}
    match limit:
        case Fields():
            found[(*limit.fields,)] = name
            for field, child in limit.fields.items():
                found = {**field_lists(child, f"{name}_{field}"), **found}
        case Items():
            found |= field_lists(limit.item, name)
        case AnyValue() | Check():
            pass
    return found


def list_variables(lists: FieldLists) -> list[Object]:
    """The lists as variables of a policy."""
    return [
        {"name": name, "expression": f"[{', '.join(map(_quoted, fields))}]"}
        for fields, name in sorted(lists.items(), key=lambda each: each[1])
    ]


def validations(limit: Limit, variable: str, path: str, lists: FieldLists) -> Iterator[Object]:
    """Yield the validations of a variable, those of types before those of values.

    The API server reports the first that fails. path: of the variable's value in the object. lists: as
    `field_lists` returns them for the limit.
    """
    for each in _conditions(limit, variable, lists, depth=0):
        yield {
            "expression": each.holds,
            # Used if messageExpression has no valid result, as for a name with a line break.
            "message": f"{path} has a field or value that is not allowed: see docs/concepts/security.md",
            "messageExpression": _joined(_quoted(path), each.sentence),
        }


def _conditions(limit: Limit, value: str, lists: FieldLists, depth: int) -> Iterator[_Condition]:
    """Yield the conditions on a value. value: CEL expression. depth: number of lists around it."""
    match limit:
        case AnyValue():
            return
        case Check():
            yield _Condition(limit.cel.replace("VALUE", value), _quoted(f" {limit.must}"))
        case Fields():
            yield _Condition(_is_type(limit, value, "map"), _quoted(NOT_A_MAP), is_structural=True)
            for each in _field_conditions(limit, value, lists, depth):
                yield replace(each, holds=_unless_null(limit, value, each.holds))
        case Items():
            yield _Condition(_is_type(limit, value, "list"), _quoted(NOT_A_LIST))
            for each in _item_conditions(limit, value, lists, depth):
                yield _Condition(_unless_null(limit, value, each.holds), each.sentence)


def _field_conditions(
    limit: Fields, value: str, lists: FieldLists, depth: int
) -> Iterator[_Condition]:
    is_allowed = f"key in variables.{lists[(*limit.fields,)]}"
    yield _Condition(
        f"{value}.all(key, {is_allowed})",
        f"'.' + {value}.filter(key, !({is_allowed}))[0] + {_quoted(NOT_ALLOWED)}",
    )
    for name in limit.required:
        yield _Condition(f"'{name}' in {value}", _quoted(missing(name)), is_structural=True)
    for name, child in limit.fields.items():
        for each in _conditions(child, f"{value}.{name}", lists, depth):
            yield _Condition(
                f"!('{name}' in {value}) || ({each.holds})",
                _joined(_quoted(f".{name}"), each.sentence),
                is_structural=name in limit.required,
            )
    for check in limit.checks:
        yield from _conditions(check, value, lists, depth)


def _item_conditions(
    limit: Items, value: str, lists: FieldLists, depth: int
) -> Iterator[_Condition]:
    item = f"item{depth}"
    for each in _conditions(limit.item, item, lists, depth + 1):
        is_named = limit.key and not each.is_structural
        name = f"'[' + {item}.{limit.key} + ']'" if is_named else "'[]'"
        sentence = _joined(name, each.sentence)
        yield _Condition(
            f"{value}.all({item}, {each.holds})",
            f"{value}.filter({item}, !({each.holds})).map({item}, {sentence})[0]",
        )


def _is_type(limit: Fields | Items, value: str, name: str) -> str:
    return _unless_null(limit, value, f"type({value}) == {name}")


def _unless_null(limit: Fields | Items, value: str, condition: str) -> str:
    return f"{value} == null || ({condition})" if limit.is_removable else condition


def _quoted(text: str) -> str:
    return f"'{text}'"


def _joined(first: str, second: str) -> str:
    """CEL expression that concatenates two strings. Adjacent literals become one."""
    if first.endswith("'") and second.startswith("'"):
        return first[:-1] + second[1:]
    return f"{first} + {second}"
