"""The fields of a request that the gateway reads, as a pydantic-core schema of each API.

A field that is not named here is checked to be JSON but never becomes a Python object: 4 MiB of
`[],` take 40 ms this way, and 200 ms and 100 MB as Python lists. A field of the wrong type counts as
absent: it is the engine that validates requests.
"""

from collections.abc import Mapping
from functools import cache

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

from penstock.core.routing.apis import Api, PromptKind


def _optional(schema: CoreSchema, default: object = None) -> TypedDictField:
    tolerant = with_default_schema(schema, default=default, on_error="default")
    return typed_dict_field(tolerant, required=False)


def _object(**fields: TypedDictField) -> CoreSchema:
    return typed_dict_schema(fields, extra_behavior="ignore")


TEXT = str_schema(strict=True)
# Bound on the messages of a request and the parts of a message; a longer list counts as absent. Each
# item takes 1 us of the event loop.
MAX_ITEMS = 10_000
# fail_fast: the first bad item ends a list. Collecting a million errors would take 0.1 s and more.
PART = _object(type=_optional(TEXT), text=_optional(TEXT))
PARTS = list_schema(PART, max_length=MAX_ITEMS, fail_fast=True)
CONTENT = union_schema([TEXT, PARTS], mode="left_to_right")
TOOLS = _optional(list_schema(any_schema()))
MESSAGE = _object(role=_optional(TEXT), content=_optional(CONTENT), tool_calls=TOOLS)
PROMPT = union_schema([TEXT, list_schema(any_schema())], mode="left_to_right")
PROMPT_FIELDS: Mapping[PromptKind, TypedDictField] = {
    "Messages": _optional(list_schema(MESSAGE, max_length=MAX_ITEMS, fail_fast=True)),
    "Text": _optional(PROMPT),
}
COMMON = {
    "model": _optional(TEXT),
    # Engines accept 1 and "true" as true, so this is not strict either.
    "stream": _optional(bool_schema(), default=False),
    "stream_options": _optional(_object(include_usage=_optional(bool_schema(), default=False))),
    "user": _optional(TEXT),
    "tools": TOOLS,
}


@cache
def request_schema(api: Api) -> SchemaValidator:
    """Make the validator of request bodies of an API."""
    prompt = {name: PROMPT_FIELDS[kind] for name, kind in api.prompt.items()}
    return SchemaValidator(_object(**COMMON, **prompt))
