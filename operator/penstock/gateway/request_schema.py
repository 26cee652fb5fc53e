"""The members of an OpenAI request that a gateway reads, as a schema of pydantic-core.

A member that is not named here is checked to be JSON and never becomes a Python object: 4 MiB of
`[],` take 40 ms so, and 200 ms and 100 MB as Python lists. A member of the wrong type counts as absent:
the engine, which knows its own dialect, refuses it.
"""

from pydantic_core import CoreSchema, SchemaValidator
from pydantic_core.core_schema import (
    TypedDictField,
    any_schema,
    bool_schema,
    list_schema,
    str_schema,
    typed_dict_field,
    typed_dict_schema,
    union_schema,
    with_default_schema,
)


def _optional(schema: CoreSchema, default: object = None) -> TypedDictField:
    tolerant = with_default_schema(schema, default=default, on_error="default")
    return typed_dict_field(tolerant, required=False)


def _object(**fields: TypedDictField) -> CoreSchema:
    return typed_dict_schema(fields, extra_behavior="ignore")


TEXT = str_schema(strict=True)
# Messages of a request, or parts of one. Each takes 1 us of the event loop; more count as absent.
MAX_ITEMS = 10_000
# One bad element ends a list: collecting an error for each of a million would take 0.1 s and more.
PARTS = list_schema(_object(text=_optional(TEXT)), max_length=MAX_ITEMS, fail_fast=True)
CONTENT = union_schema([TEXT, PARTS], mode="left_to_right")
TOOLS = _optional(list_schema(any_schema()))
MESSAGE = _object(role=_optional(TEXT), content=_optional(CONTENT), tool_calls=TOOLS)
PROMPT = union_schema([TEXT, list_schema(any_schema())], mode="left_to_right")
REQUEST = SchemaValidator(
    _object(
        model=_optional(TEXT),
        # As engines read it: 1 and "true" are true.
        stream=_optional(bool_schema(), default=False),
        user=_optional(TEXT),
        messages=_optional(list_schema(MESSAGE, max_length=MAX_ITEMS, fail_fast=True)),
        prompt=_optional(PROMPT),
        tools=TOOLS,
    )
)
