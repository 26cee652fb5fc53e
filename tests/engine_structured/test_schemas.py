"""JSON schemas as libraries write them: what is enforced, what is an annotation, and what is refused."""

import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import uuid
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Len
from pydantic import AnyUrl, BaseModel, Field, SecretStr, TypeAdapter

from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.structured.grammar import MAX_GRAMMAR_BYTES, GrammarError, json_schema_grammar
from penstock_engine.structured.schema import close_objects, rewrite_schema

Json = dict[str, Any]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(default=9, ge=0)


class Dog(BaseModel):
    kind: Literal["dog"]
    friends: list["Pet"] = []


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Everything(BaseModel):
    """A field of each type that tools of agents commonly have."""

    when: datetime.datetime
    day: datetime.date
    at: datetime.time
    lasts: datetime.timedelta
    id: uuid.UUID
    price: decimal.Decimal
    path: pathlib.Path
    url: AnyUrl
    address: ipaddress.IPv4Address
    network: ipaddress.IPv4Network
    secret: SecretStr
    data: bytes
    color: Color
    pet: Pet
    maybe: int | None = None
    texts: Annotated[list[str], Len(1, 5)]
    counts: dict[str, int]
    named: dict[Annotated[str, Field(description="a name")], float]
    pair: tuple[int, str]
    anything: Any = None
    number: float = Field(gt=0, le=1e6)
    bounded: Annotated[str, Field(max_length=65_536)] = ""


# Schemas as generators of other languages write them.
SCHEMAS: dict[str, Json] = {
    "zod record": {"type": "object", "propertyNames": {"type": "string"},
                   "additionalProperties": {"type": "number"}},
    "zod integer": {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1},
    "zod union": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]},
    "zod object": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                   "properties": {"a": {"default": 1, "type": "number"}}, "required": ["a"],
                   "additionalProperties": False},
    "OpenAPI int32": {"type": "integer", "format": "int32", "example": 5, "nullable": True},
    "OpenAPI byte": {"type": "string", "format": "byte", "xml": {"name": "x"}},
    "OpenAPI password": {"type": "string", "format": "password", "readOnly": True},
    "OpenAPI components": {"$ref": "#/components/schemas/A", "components": {"schemas": {
        "A": {"type": "string", "format": "binary"}}}},
    "OpenAPI union": {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
        "a": {"type": "object", "properties": {"t": {"enum": ["a"]}}, "required": ["t"]},
        "b": {"type": "object", "properties": {"t": {"enum": ["b"]}}, "required": ["t"]}}},
    "draft 4": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "definitions": {}},
    "list of set": {"type": "array", "uniqueItems": False, "items": {"type": "string"}},
    "property named format": {"type": "object", "properties": {"format": {"enum": ["regex"]}},
                              "required": ["format"], "additionalProperties": False},
    "value that looks like a schema": {"const": {"format": "regex"}},
    "references to references": {"oneOf": [{"$ref": "#/$defs/S"}, {"$ref": "#/$defs/N"}], "title": "x",
                                 "$defs": {"S": {"$ref": "#/$defs/T"}, "T": {"type": "string"},
                                           "N": {"type": "null"}}},
    "references with titles": {"type": "array", "items": {
        "oneOf": [{"$ref": "#/$defs/a~1b", "title": "S"}, {"$ref": "#/$defs/N"}]},
        "$defs": {"a/b": {"type": "string"}, "N": {"type": "null"}}},
    "tree": {"$ref": "#/$defs/Tree", "$defs": {
        "Tree": {"type": "object", "properties": {
            "kind": {"const": "tree"},
            "left": {"oneOf": [{"$ref": "#/$defs/Tree"}, {"$ref": "#/$defs/Leaf"}]}},
            "required": ["kind", "left"], "additionalProperties": False},
        "Leaf": {"type": "object", "properties": {"kind": {"const": "leaf"}}, "required": ["kind"],
                 "additionalProperties": False}}},
}  # fmt: skip


@pytest.mark.parametrize(
    "schema",
    [
        *SCHEMAS.values(),
        *(TypeAdapter(kind).json_schema() for kind in (Everything, Pet, list[Pet], Cat | Dog)),
    ],
    ids=[*SCHEMAS, "pydantic model", "pydantic union", "pydantic list", "pydantic plain union"],
)
async def test_schemas_that_libraries_write_are_taken(
    compiler: GrammarCompiler, schema: Json
) -> None:
    before = json.dumps(schema)
    await compiler.compile(json_schema_grammar(schema))
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]}, "oneOf"),
        ({"type": "array", "items": {"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]},
          "$defs": {"a": {"type": "string"}}}, "items.oneOf"),
        ({"properties": {"p": {"oneOf": [{}, {"$ref": "#/properties/p"}]}}}, "properties.p.oneOf"),
        ({"oneOf": [{"$ref": "#/$defs/a"}, {}], "$defs": {"a": {"$ref": "#/$defs/a"}}}, "oneOf"),
    ],
)  # fmt: skip
async def test_alternatives_that_may_overlap_are_refused_by_their_place(
    compiler: GrammarCompiler, schema: Json, place: str
) -> None:
    with pytest.raises(GrammarError) as refusal:
        await compiler.compile(json_schema_grammar(schema))
    assert str(refusal.value) == (
        f"{place}: the alternatives may overlap: use anyOf, or give each a required property with "
        "another const"
    )


def test_recursive_alternatives_are_enforced_at_each_depth(compile_now: Any) -> None:
    grammar = json_schema_grammar(SCHEMAS["tree"])
    leaf = {"kind": "leaf"}
    for depth in range(4):
        good: Json = leaf
        for _ in range(depth + 1):
            good = {"kind": "tree", "left": good}
        assert compile_now.matches(grammar, json.dumps(good))
        assert not compile_now.matches(grammar, json.dumps(good).replace("leaf", "root"))


# The schema of Python's Decimal by pydantic 2.12.
DECIMAL = {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}


@pytest.mark.parametrize(
    ("text", "schema", "is_matched"),
    [
        ('"-00.5"', DECIMAL, True),
        ('".5"', DECIMAL, True),
        ('"+7."', DECIMAL, True),
        ('"+."', DECIMAL, False),
        ('""', DECIMAL, False),
    ],
)
def test_the_pattern_of_a_decimal_is_enforced(
    compile_now: Any, text: str, schema: Json, is_matched: bool
) -> None:
    assert compile_now.matches(json_schema_grammar(schema), text) is is_matched


def test_a_schema_that_expands_without_bound_is_left_as_it_is() -> None:
    wide = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2000)}}
    schema = {"oneOf": [{"$ref": "#/$defs/wide"}] * 500, "$defs": {"wide": wide}}
    rewritten = rewrite_schema(schema, MAX_GRAMMAR_BYTES)
    assert rewritten["oneOf"][0] == wide
    assert rewritten["oneOf"][-1] == {"$ref": "#/$defs/wide"}


def test_objects_are_closed_unless_they_say_otherwise() -> None:
    inner = {"properties": {"a": {}}}
    schema = {"properties": {"x": inner, "y": inner | {"additionalProperties": True}, "z": {}}}
    closed = inner | {"additionalProperties": False}
    assert close_objects(schema) == {
        "properties": {"x": closed, "y": inner | {"additionalProperties": True}, "z": {}},
        "additionalProperties": False,
    }
