"""Hostile schemas, expressions and grammars for structured output: deep, large, recursive, contradictory."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

Json = Any


def hostile() -> Iterator[tuple[str, Json]]:
    """Hostile cases as (name, structured_outputs)."""
    parts = (
        _deep_schemas,
        _large_schemas,
        _recursive_schemas,
        _combined_schemas,
        _contradictions,
        _not_schemas,
    )
    for name, schema in chain.from_iterable(part() for part in parts):
        yield f"json: {name}", {"json": schema}
    for name, pattern in _hostile_regexes():
        yield f"regex: {name}", {"regex": pattern}
        if len(pattern) < 2000:
            yield f"pattern: {name}", {"json": {"type": "string", "pattern": pattern}}
    for name, rules in _hostile_grammars():
        yield f"grammar: {name}", {"grammar": rules}
    yield "choice: none", {"choice": []}
    yield "choice: 100,000", {"choice": [f"choice {i}" for i in range(100_000)]}
    yield "choice: 4,000 of one beginning", {"choice": ["a" * 20 + str(i) for i in range(4000)]}
    yield "choice: long ones", {"choice": ["x" * 60_000, "x" * 60_000 + "y"]}
    yield "choice: control characters", {"choice": ["\x00\x1b", "\u2028"]}


def _nest(wrap: str, levels: int) -> Json:
    schema: Json = {"type": "string", "maxLength": 3}
    for _ in range(levels):
        match wrap:
            case "properties":
                schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
            case "items":
                schema = {"type": "array", "items": schema, "minItems": 1}
            case "not":
                schema = {"not": schema}
            case keyword:
                schema = {keyword: [schema, {"type": "null"}]}
    return schema


def _deep_schemas() -> Iterator[tuple[str, Any]]:
    """Schemas of many levels."""
    for levels in (10, 29, 45, 60, 90, 200):
        for wrap in ("properties", "items", "anyOf", "allOf", "oneOf", "not", "prefixItems"):
            yield f"{levels} levels of {wrap}", _nest(wrap, levels)


def _large_schemas() -> Iterator[tuple[str, Any]]:
    """Schemas with many parts, or with large bounds."""
    for count in (100, 2000, 10_000, 50_000):
        words = [f"value-{i}" for i in range(count)]
        yield f"enum of {count}", {"enum": words}
        yield f"enum of {count} arrays", {"enum": [[word, {"k": word}] for word in words]}
        yield f"{count} optional properties", {"properties": {w: {"type": "null"} for w in words}}
        yield f"{count} required properties", {"type": "object", "required": words}
        yield f"anyOf {count}", {"anyOf": [{"const": word} for word in words]}
        yield f"oneOf {count}", {"oneOf": [{"required": [word]} for word in words]}
        yield f"{count} definitions", {
            "$defs": {w: {"type": "string"} for w in words}, "$ref": "#/$defs/value-5"
        }  # fmt: skip
    for size in (1000, 10**6, 10**9, 10**15, 2**63, 10**30, -1, -5):
        yield f"minLength {size}", {"type": "string", "minLength": size}
        yield f"maxLength {size}", {"type": "string", "maxLength": size}
        yield f"minItems {size}", {"type": "array", "items": {"type": "null"}, "minItems": size}
        yield f"maxItems {size}", {"type": "array", "items": {"type": "null"}, "maxItems": size}
        yield f"minProperties {size}", {"type": "object", "minProperties": size}
        yield f"multipleOf {size}", {"type": "integer", "multipleOf": size}
        yield f"number below {size}", {"type": "number", "exclusiveMaximum": size, "minimum": 0}


def _recursive_schemas() -> Iterator[tuple[str, Any]]:
    """Schemas that refer to themselves, or whose size doubles with each definition."""
    boxes: Json = {"type": "integer"}
    for _ in range(6):
        boxes = {"type": "array", "items": boxes, "minItems": 1000, "maxItems": 1000}
    yield "arrays of arrays", boxes
    yield "refers to itself", {"$ref": "#"}
    yield "allOf itself", {"allOf": [{"$ref": "#"}]}
    yield "anyOf itself", {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    yield "two in a circle", {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"
    }  # fmt: skip
    yield "recursion without end", {
        "type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]
    }  # fmt: skip
    yield "recursion in allOf", {
        "$defs": {"a": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}}},
        "$ref": "#/$defs/a",
    }  # fmt: skip
    doubling: Json = {
        f"l{i}": {
            "type": "array",
            "prefixItems": [{"$ref": f"#/$defs/l{i + 1}"}] * 2,
            "minItems": 2,
        }
        for i in range(40)
    }
    yield "2 to the 40 leaves", {"$defs": doubling | {"l40": {"const": 1}}, "$ref": "#/$defs/l0"}
    yield (
        "2 to the 40 intersections",
        {
            "$defs": {f"l{i}": {"allOf": [{"$ref": f"#/$defs/l{i + 1}"}] * 2} for i in range(40)}
            | {"l40": {"type": "string"}},
            "$ref": "#/$defs/l0",
        },
    )


def _combined_schemas() -> Iterator[tuple[str, Any]]:
    """Keywords whose combinations take long, and references to other places."""
    for count in (8, 12, 20):
        yield f"3 to the {count} cases", {"allOf": [
            {"anyOf": [{"properties": {f"p{i}": {"const": j}}, "required": [f"p{i}"]} for j in range(3)]}
            for i in range(count)
        ]}  # fmt: skip
    yield "many multiples", {"allOf": [{"multipleOf": p} for p in (101, 103, 107, 109, 113, 127)]}
    yield "large multiple", {"type": "integer", "multipleOf": 999_999_937}
    yield "small multiple", {"type": "number", "multipleOf": 1e-9}
    yield (
        "many patterns",
        {"allOf": [{"type": "string", "pattern": f"(a|b)*a(a|b){{{n}}}$"} for n in range(10, 20)]},
    )
    yield "patterns that meet", {"patternProperties": {"^a": {"type": "null"}, "b$": {"const": 1}}}
    for keyword in (
        "http://example.invalid/x",
        "https://127.0.0.1/x",
        "file:///etc/passwd",
        "//x/y",
    ):
        yield f"$ref {keyword}", {"$ref": keyword}
        yield f"$schema {keyword}", {"$schema": keyword, "type": "integer"}


def _contradictions() -> Iterator[tuple[str, Any]]:
    """Schemas that nothing fulfills."""
    for schema in (
        {"minimum": 3, "maximum": 2, "type": "integer"},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1},
        {"type": "integer", "minimum": 5, "maximum": 9, "multipleOf": 11},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"allOf": [{"const": 1}, {"const": 2}]},
        {"required": ["a"], "additionalProperties": False, "type": "object"},
        {"properties": {"a": False}, "required": ["a"], "type": "object"},
        {"enum": []}, {"anyOf": []}, {"type": []}, {"not": {}}, False,
    ):  # fmt: skip
        yield f"contradiction {schema}", schema


def _not_schemas() -> Iterator[tuple[str, Any]]:
    """Values that are no schema, or none that is supported."""
    for schema in (
        None, 5, 1.5, "text", [], [{}], {"type": 5}, {"type": "strin"}, {"type": None},
        {"type": {"type": "string"}}, {"properties": []}, {"properties": {"a": 5}}, {"items": 7},
        {"required": "a"}, {"required": [1]}, {"enum": "abc"}, {"minLength": "3"}, {"pattern": 5},
        {"minimum": "0"}, {"multipleOf": 0}, {"multipleOf": -1}, {"anyOf": {}}, {"$ref": 5},
        {"$ref": "#/nowhere"}, {"$ref": "#/$defs/%"}, {"additionalProperties": 3},
        {"format": "no such format", "type": "string"}, {"uniqueItems": True}, {"if": {}, "then": {}},
        {"contains": {}}, {"propertyNames": {"pattern": "a"}}, {"unevaluatedProperties": False},
        {"dependentRequired": {"a": ["b"]}}, {"$dynamicRef": "#a"}, {"x-guidance": 5},
        {"x-guidance": {"whitespace_pattern": "(" * 50}, "type": "object"},
        {"x-guidance": {"whitespace_pattern": ".*"}, "type": "object"},
        {"const": "\ud7ff\x00"}, {"const": 10**400}, {"minimum": 1e300, "type": "number"},
        {"title": "x" * 200_000}, {"description": "é" * 100_000}, {"\x00": {"\x00": "\x00"}},
    ):  # fmt: skip
        yield f"not a schema {str(schema)[:60]}", schema


def _hostile_regexes() -> Iterator[tuple[str, str]]:
    for pattern in (
        "(a+)+$", "(a|a)*b", "(a*)*c", "(.*a){20}", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(a|b|ab)*bc", "([a-zA-Z]+)*@", r"(\w+\s?)*!", "(.*)*(.*)*(.*)*x", "(a?){50}a{50}",
        "a{100000}", "a{1000000000}", "a{99999999999999999999}", "((a{1000}){1000}){1000}",
        "(.{1,1000}){1,1000}", "(((a{1,99}){1,99}){1,99}){1,99}", ".*a.{30}", ".*a.{300}b",
        "(a|b)*a(a|b){20}", r"\p{L}{1,1000}", r"(\p{L}|\p{N}|\p{S}){500}", r"\w{1,5000}\d{5000}",
        "[^\\s\\S]", "(?=a)b", "(?!a)b", "(?<=a)b", r"(a)\1", r"(?P<n>a)(?P=n)", "(?(1)a|b)",
        "(((((", ")))", "[a-", "a{2,1}", "*a", r"\8", r"\p{Nonsense}", "(?z)a", "\\", "",
        "(" * 100 + "a" + ")" * 100, "(" * 4000 + "a" + ")" * 4000, "(?:" * 200 + "a" + ")*" * 200,
        "|".join(f"word{i}" for i in range(900)), "a?" * 200 + "a" * 200, "a|" * 3000, "x" * 8193,
        "[" + "".join(map(chr, range(0x4E00, 0x5600))) + "]{100}", "(a|" * 150 + "b" + ")" * 150,
        "(?s:.*)" * 60 + "end", "(ab|ba|aab|bba){2000}", "\x00\x01", "é{1000}", "\n\n//\"'",
    ):  # fmt: skip
        yield repr(pattern[:30]), pattern


def _hostile_grammars() -> Iterator[tuple[str, str]]:
    for rules in (
        "start: start", "start: start start | \"a\"", 'start: "a" start | "a"', "start: nothing", "",
        "start:", "nonsense", "start: (", 'start: "a"{1000000000}', 'start: "a"~5..100000000',
        'start: (("a"{1,10000}){1,10000}){1,10000}', 'start: A\nA: "a" A?', "x: \"a\"",
        "start: a0\n" + "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(40)) + '\na40: "x"',
        "start: A0\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(40)) + '\nA40: "x"',
        "start: a a a a a a a a\na: a a | \"x\" | ", "start: " + "(" * 5000 + '"a"' + ")" * 5000,
        'start: A\nA: ~(~(/.*a.{20}/) & ~(/.*b.{20}/))', "%import common.WS\nstart: WS",
        "%import /etc/passwd\nstart: WS", '%llguidance {"no_forcing": false}\nstart: /a{100000}/',
        "start: %json " + '{"a":' * 3000 + "1" + "}" * 3000, "start: @nobody", "start: <[99999999]>",
        "start: <|nothing|>", 'start: %regex {"substring_chars": "' + "ab" * 20_000 + '"}',
        'root ::= root', 'root ::= ("a"', 'root ::= "a" b', "root ::= [a-z", "root ::= " + '"a" ' * 9000,
        "start: " + " | ".join(f'"{i}"' for i in range(12_000)), "start: /a/\nstart: /b/",
        "start[max_tokens=5]: /a+/", 'start[stop="x"]: /.*/', "\x00", "start: \"\\ud800\"",
    ):  # fmt: skip
        yield repr(rules[:30]), rules
