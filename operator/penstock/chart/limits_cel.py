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

Validation = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Condition:
    """A CEL condition, and the CEL expression of the sentence about a value that does not meet it.

    is_of_type: whether it is about the type of the value, which then may have no name to tell.
    """

    holds: str
    sentence: str
    is_of_type: bool = False


def validations(limit: Limit, variable: str, path: str) -> Iterator[Validation]:
    """Yield the validations of a variable, in an order in which types are checked before values.

    The API server reports the first that fails. path: of the variable's value in the object.
    """
    for each in _conditions(limit, variable, depth=0):
        yield {
            "expression": each.holds,
            # Used if the sentence cannot be made, such as of a name with a line break.
            "message": f"{path} has what is not allowed in a template: see docs/concepts/security.md",
            "messageExpression": _joined(_quoted(path), each.sentence),
        }


def _conditions(limit: Limit, value: str, depth: int) -> Iterator[_Condition]:
    """Yield the conditions on a value. value: CEL expression. depth: number of lists around it."""
    match limit:
        case AnyValue():
            return
        case Check():
            yield _Condition(limit.cel.replace("VALUE", value), _quoted(f" {limit.must}"))
        case Fields():
            yield _Condition(_is_type(limit, value, "map"), _quoted(NOT_A_MAP), is_of_type=True)
            for each in _field_conditions(limit, value, depth):
                yield replace(each, holds=_unless_null(limit, value, each.holds))
        case Items():
            yield _Condition(_is_type(limit, value, "list"), _quoted(NOT_A_LIST))
            for each in _item_conditions(limit, value, depth):
                yield _Condition(_unless_null(limit, value, each.holds), each.sentence)


def _field_conditions(limit: Fields, value: str, depth: int) -> Iterator[_Condition]:
    names = ", ".join(map(_quoted, limit.fields))
    refused = f"{value}.filter(key, !(key in [{names}]))"
    yield _Condition(
        f"{value}.all(key, key in [{names}])", f"'.' + {refused}[0] + {_quoted(NOT_ALLOWED)}"
    )
    for name in limit.required:
        yield _Condition(f"'{name}' in {value}", _quoted(missing(name)), is_of_type=True)
    for name, child in limit.fields.items():
        for each in _conditions(child, f"{value}.{name}", depth):
            yield _Condition(
                f"!('{name}' in {value}) || ({each.holds})",
                _joined(_quoted(f".{name}"), each.sentence),
                is_of_type=name in limit.required,
            )
    for check in limit.checks:
        yield from _conditions(check, value, depth)


def _item_conditions(limit: Items, value: str, depth: int) -> Iterator[_Condition]:
    item = f"item{depth}"
    for each in _conditions(limit.item, item, depth + 1):
        is_named = limit.key and not each.is_of_type
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
    """The concatenation of two CEL expressions of strings, with string literals side by side made one."""
    if first.endswith("'") and second.startswith("'"):
        return first[:-1] + second[1:]
    return f"{first} + {second}"
