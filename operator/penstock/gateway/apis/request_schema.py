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

from penstock.core.routing.apis import Api
from penstock.core.routing.prompt_kinds import MESSAGES, TEXT, TOOLS, PromptKind


def _optional(schema: CoreSchema, default: object = None) -> TypedDictField:
    tolerant = with_default_schema(schema, default=default, on_error="default")
    return typed_dict_field(tolerant, required=False)


def _object(**fields: TypedDictField) -> CoreSchema:
    return typed_dict_schema(fields, extra_behavior="ignore")


STRING = str_schema(strict=True)
# Bound on the messages of a request and the parts of a message; a longer list counts as absent. Each
# item takes 1 us of the event loop.
MAX_ITEMS = 10_000
# fail_fast: the first bad item ends a list. Collecting a million errors would take 0.1 s and more.
PART = _object(type=_optional(STRING), text=_optional(STRING))
PARTS = list_schema(PART, max_length=MAX_ITEMS, fail_fast=True)
CONTENT = union_schema([STRING, PARTS], mode="left_to_right")
JSON_LIST = _optional(list_schema(any_schema()))
MESSAGE = _object(role=_optional(STRING), content=_optional(CONTENT), tool_calls=JSON_LIST)
PROMPT = union_schema([STRING, list_schema(any_schema())], mode="left_to_right")
PROMPT_FIELDS: Mapping[PromptKind, TypedDictField] = {
    MESSAGES: _optional(list_schema(MESSAGE, max_length=MAX_ITEMS, fail_fast=True)),
    TOOLS: JSON_LIST,
    TEXT: _optional(PROMPT),
}
COMMON = {
    "model": _optional(STRING),
    # Engines accept 1 and "true" as true, so this is not strict either.
    "stream": _optional(bool_schema(), default=False),
    "stream_options": _optional(_object(include_usage=_optional(bool_schema(), default=False))),
    "user": _optional(STRING),
}


@cache
def request_schema(api: Api) -> SchemaValidator:
    """Make the validator of request bodies of an API."""
    fields = {name: PROMPT_FIELDS[kind] for prompt in api.prompts for name, kind in prompt.items()}
    return SchemaValidator(_object(**COMMON, **fields))
