"""Rewrites JSON schemas for the grammar compiler, which refuses whatever it cannot enforce.

It drops only what forbids nothing, and replaces only what the compiler enforces in another spelling.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import unquote

Json = dict[str, Any]

# Keywords whose value is a schema, a list of schemas, or a map of them.
SCHEMA_KEYWORDS = (
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
LIST_KEYWORDS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
MAP_KEYWORDS = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")

# Keywords that the compiler does not have, with values that forbid nothing. Generators write them.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "propertyNames": (True, {}, {"type": "string"}),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "uniqueItems": (False,),
}

# Formats of JSON Schema: those that the compiler enforces, and the others. A format with any other name is
# an annotation, as JSON Schema says.
ENFORCED_FORMATS = frozenset(
    {
        "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid",
    }
)  # fmt: skip
OTHER_FORMATS = frozenset(
    {
        "idn-email", "idn-hostname", "iri", "iri-reference", "json-pointer", "regex",
        "relative-json-pointer", "uri-reference", "uri-template",
    }
)  # fmt: skip

# Patterns with look-around, which the compiler does not have, and the same without it. This one is that of
# Python's Decimal in pydantic's schemas.
PATTERNS = {r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$": r"^[+-]?(\d+\.?\d*|\.\d+)$"}

# Keywords that restrict nothing.
ANNOTATIONS = frozenset({"$comment", "default", "deprecated", "description", "examples", "title"})
# Longest chain of references that is followed; a cycle ends here.
MAX_REFERENCES = 16


def rewrite_schema(schema: Json, max_inlined_bytes: int) -> Json:
    """Returns an equivalent schema that the compiler takes. Raises ValueError for a format that it lacks.

    max_inlined_bytes: of targets that take the place of references, as JSON. The last one may exceed it.
    """
    root = deepcopy(schema)
    subschemas = list(iter_subschemas(root))
    for place, subschema in subschemas:
        for keyword, values in NEUTRAL.items():
            if _without_annotations(subschema.get(keyword, ...)) in values:
                del subschema[keyword]
        _check_format(place, subschema)
        pattern = subschema.get("pattern")
        if isinstance(pattern, str):
            subschema["pattern"] = PATTERNS.get(pattern, pattern)
    _inline_alternatives(root, [subschema for _, subschema in subschemas], max_inlined_bytes)
    return root


def close_objects(schema: Json) -> Json:
    """Returns a schema in which objects have no other properties than those listed, unless it says so."""
    root = deepcopy(schema)
    for _, subschema in iter_subschemas(root):
        if "properties" in subschema or "patternProperties" in subschema:
            subschema.setdefault("additionalProperties", False)
    return root


def iter_subschemas(root: Json) -> Iterator[tuple[str, Json]]:
    """Yields the place and the content of each schema within a schema, itself included, once."""
    stack: list[tuple[str, Any]] = [("", root)]
    visited: set[int] = set()
    while stack:
        place, schema = stack.pop()
        if not isinstance(schema, dict) or id(schema) in visited:
            continue
        visited.add(id(schema))
        yield place, schema
        for path, child in _children(schema):
            stack.append((".".join(filter(None, (place, *path))), child))
        reference = schema.get("$ref")
        if isinstance(reference, str):
            stack.append(
                (reference.removeprefix("#/").replace("/", "."), _resolve(root, reference))
            )


def _children(schema: Json) -> Iterator[tuple[tuple[str, ...], Any]]:
    for keyword in SCHEMA_KEYWORDS:
        if keyword in schema:
            yield (keyword,), schema[keyword]
    for keyword in LIST_KEYWORDS:
        if isinstance(schema.get(keyword), list):
            for index, child in enumerate(schema[keyword]):
                yield (keyword, str(index)), child
    for keyword in MAP_KEYWORDS:
        if isinstance(schema.get(keyword), dict):
            for name, child in schema[keyword].items():
                yield (keyword, name), child


def _without_annotations(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {keyword: inner for keyword, inner in value.items() if keyword not in ANNOTATIONS}


def _check_format(place: str, schema: Json) -> None:
    """Drops a format that is an annotation. Raises ValueError for one that cannot be enforced."""
    name = schema.get("format")
    if not isinstance(name, str) or name in ENFORCED_FORMATS:
        return
    kinds = schema.get("type", "string")
    if name in OTHER_FORMATS and "string" in (kinds if isinstance(kinds, list) else [kinds]):
        where = f"{place}.format" if place else "format"
        raise ValueError(f"{where}: {name} cannot be enforced: leave it out")
    del schema["format"]


def _inline_alternatives(root: Json, schemas: list[Json], max_bytes: int) -> None:
    """Puts the targets of references in their place where they are alternatives of oneOf.

    The compiler looks into alternatives, but not through references, to tell whether they exclude each
    other.
    """
    budget = max_bytes
    for schema in schemas:
        if not isinstance(schema.get("oneOf"), list):
            continue
        for index, alternative in enumerate(schema["oneOf"]):
            target = _inlined(root, alternative) if budget > 0 else alternative
            if target is not alternative:
                budget -= len(json.dumps(target))
                schema["oneOf"][index] = target


def _inlined(root: Json, alternative: Any) -> Any:
    """Returns a copy of the schema that an alternative only refers to; any other alternative unchanged."""
    target, reference = alternative, None
    for _ in range(MAX_REFERENCES):
        if not isinstance(target, dict) or target.keys() - ANNOTATIONS != {"$ref"}:
            break
        reference = target["$ref"]
        target = _resolve(root, reference)
    if reference is None or not isinstance(target, dict) or {"$ref", "oneOf"} & target.keys():
        return alternative
    copy = deepcopy(target)
    for path, child in list(_children(copy)):
        if isinstance(child, dict) and any("oneOf" in inner for _, inner in iter_subschemas(child)):
            # Alternatives within the target stay where they are: the target may contain itself.
            _replace(copy, path, {"$ref": "/".join((reference, *map(_escape, path)))})
    return copy


def _replace(schema: Json, path: tuple[str, ...], child: Json) -> None:
    *parents, key = path
    parent: Any = schema[parents[0]] if parents else schema
    parent[int(key) if isinstance(parent, list) else key] = child


def _resolve(root: Json, reference: Any) -> Any:
    """Returns what a reference within the schema points to; None if there is nothing."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    value: Any = root
    for part in reference[2:].split("/"):
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isascii() and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return None
    return value


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
