"""Schemas for constrained answers, and hostile schemas, regexes and grammars."""

import random
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

PATTERNS = (r"^[a-z]{1,8}$", r"^\d{2,4}$", r"^(ab|cd)+e?$", r"^[A-Z][a-z]{0,6}$", r"^x?y{2}z$")
FORMATS = ("date", "ipv4", "uuid", "time")


def schemas(count: int, seed: int, deepest: int = 7) -> Iterator[Json]:
    """Schemas of growing depth, small enough that an untrained model reaches the end."""
    draw = random.Random(seed)
    for index in range(count):
        yield _root(draw, 1 + index * deepest // count)


def _root(draw: random.Random, depth: int) -> Json:
    leaf = _leaf(draw)
    schema = _object(draw, depth) if draw.random() < 0.8 else _any(draw, depth)
    # A list that may end at any item, so that a random answer leaves the recursion soon.
    node = {
        "type": "object",
        "properties": {"value": leaf, "next": {"$ref": "#/$defs/node"}},
        "required": ["value"],
        "additionalProperties": False,
    }
    return schema | {"$defs": {"leaf": leaf, "node": node}}


def _any(draw: random.Random, depth: int) -> Json:
    if depth <= 0:
        return _leaf(draw)
    kinds = (_object, _object, _array, _array, _union, _intersection, _reference)
    return draw.choice(kinds)(draw, depth)


def _object(draw: random.Random, depth: int) -> Json:
    names = draw.sample(
        ["id", "name", "ünit", "a b", 'q"t', "list", "x-y", "z"], draw.randint(1, 3)
    )
    schema: Json = {
        "type": "object",
        "properties": {name: _any(draw, depth - 1 - (i > 0)) for i, name in enumerate(names)},
        "required": [name for name in names if draw.random() < 0.7],
        "additionalProperties": False,
    }
    if draw.random() < 0.15:
        schema["patternProperties"] = {"^k[0-9]$": _leaf(draw)}
    return schema


def _array(draw: random.Random, depth: int) -> Json:
    least = draw.randint(0, 2)
    schema: Json = {
        "type": "array",
        "items": _any(draw, depth - 1),
        "minItems": least,
        "maxItems": least + draw.randint(0, 1),
    }
    if draw.random() < 0.3:
        schema["prefixItems"] = [_leaf(draw)]
    return schema


def _union(draw: random.Random, depth: int) -> Json:
    if draw.random() < 0.3:
        return {"oneOf": [_string(draw), _integer(draw), {"type": "null"}]}
    return {"anyOf": [_any(draw, depth - 1), _leaf(draw), {"type": "null"}]}


def _intersection(draw: random.Random, depth: int) -> Json:
    left, right = _object(draw, depth - 1), _leaf(draw)
    del left["additionalProperties"]
    left.pop("patternProperties", None)
    extra = {"type": "object", "properties": {"extra": right}, "required": ["extra"]}
    return {"allOf": [left, extra], "additionalProperties": False} | {
        "properties": dict.fromkeys([*left["properties"], "extra"], True)
    }


def _reference(draw: random.Random, _: int) -> Json:
    return {"$ref": f"#/$defs/{draw.choice(['leaf', 'node'])}"}


def _leaf(draw: random.Random) -> Json:
    kinds = (_string, _string, _integer, _number, _fixed, _simple)
    return draw.choice(kinds)(draw)


def _string(draw: random.Random) -> Json:
    kind = draw.randrange(4)
    if kind == 0:
        return {"type": "string", "pattern": draw.choice(PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": draw.choice(FORMATS)}
    least = draw.randint(0, 3)
    return {"type": "string", "minLength": least, "maxLength": least + draw.randint(0, 9)}


def _integer(draw: random.Random) -> Json:
    low = draw.randint(-1000, 1000)
    schema: Json = {"type": "integer", "minimum": low, "maximum": low + draw.randint(10, 10**6)}
    if draw.random() < 0.3:
        schema["multipleOf"] = draw.choice([2, 3, 5, 10])
    elif draw.random() < 0.3:
        schema["exclusiveMaximum"] = schema.pop("maximum")
    return schema


def _number(draw: random.Random) -> Json:
    low = draw.randint(-100, 100) / 4
    return {"type": "number", "minimum": low, "exclusiveMaximum": low + draw.randint(1, 400)}


def _fixed(draw: random.Random) -> Json:
    values = ["red", "grün", 'say "hi"', "\\", 7, -1.5, None, True, ["x", 1], {"k": {"n": []}}]
    if draw.random() < 0.3:
        return {"const": draw.choice(values)}
    return {"enum": draw.sample(values, draw.randint(1, 5))}


def _simple(draw: random.Random) -> Json:
    return draw.choice([{"type": "boolean"}, {"type": "null"}, {"type": ["boolean", "null"]}])
