"""The fields of a request that the gateway reads, as a pydantic-core schema of each API.

A field that is not named here is checked to be JSON but never becomes a Python object: 4 MiB of
`[],` take 40 ms this way, and 200 ms and 100 MB as Python lists. A field of the wrong type counts as
absent: it is the engine that validates requests.
"""

from collections.abc import Mapping
from functools import cache
from math import inf

from pydantic_core import CoreSchema, SchemaValidator
from pydantic_core.core_schema import (
    TypedDictField,
    any_schema,
    bool_schema,
    float_schema,
    int_schema,
    list_schema,
    nullable_schema,
    str_schema,
    typed_dict_field,
    typed_dict_schema,
    union_schema,
    with_default_schema,
)

from penstock.core.routing.apis import Api
from penstock.core.routing.prompt_kinds import (
    BLOCKS,
    CONVERSATIONS,
    DOCUMENTS,
    ITEMS,
    MESSAGES,
    TEXT,
    TOOLS,
    PromptKind,
)
from penstock.core.routing.prompt_kinds import CONTENT as CONTENT_KIND


def _optional(schema: CoreSchema, default: object = None) -> TypedDictField:
    tolerant = with_default_schema(schema, default=default, on_error="default")
    return typed_dict_field(tolerant, required=False)


def _object(**fields: TypedDictField) -> CoreSchema:
    return typed_dict_schema(fields, extra_behavior="ignore")


STRING = str_schema(strict=True)
# Bound on the messages of a request and the parts of a message; a longer list counts as absent. Each
# item takes 1 us of the event loop.
MAX_ITEMS = 10_000
MAX_CHATS = 64  # in one batch; engines take no more


def _items(item: CoreSchema, most: int = MAX_ITEMS) -> CoreSchema:
    """A list. The first bad item ends it (fail_fast): collecting a million errors takes 0.1 s and more."""
    return list_schema(item, max_length=most, fail_fast=True)


def _text_or(other: CoreSchema) -> CoreSchema:
    return union_schema([STRING, other], mode="left_to_right")


PART = _object(type=_optional(STRING), text=_optional(STRING))
CONTENT = _text_or(_items(PART))
JSON_LIST = _optional(list_schema(any_schema()))
MESSAGE = _object(role=_optional(STRING), content=_optional(CONTENT), tool_calls=JSON_LIST)
PROMPT = _text_or(list_schema(any_schema()))
BLOCK = _object(
    type=_optional(STRING),
    text=_optional(STRING),
    thinking=_optional(STRING),
    input=_optional(any_schema()),
    content=_optional(CONTENT),
)
BLOCK_MESSAGE = _object(role=_optional(STRING), content=_optional(_text_or(_items(BLOCK))))
ITEM = _object(
    role=_optional(STRING),
    content=_optional(CONTENT),
    arguments=_optional(STRING),
    input=_optional(STRING),
    output=_optional(CONTENT),
)
DOCUMENT = _text_or(_object(text=_optional(STRING), content=_optional(CONTENT)))
# The messages of all chats of a batch together may be as many as those of one chat.
CHATS = list_schema(_items(MESSAGE, MAX_ITEMS // MAX_CHATS), max_length=MAX_CHATS, fail_fast=True)
PROMPT_FIELDS: Mapping[PromptKind, TypedDictField] = {
    MESSAGES: _optional(_items(MESSAGE)),
    TOOLS: JSON_LIST,
    TEXT: _optional(PROMPT),
    BLOCKS: _optional(_items(BLOCK_MESSAGE)),
    ITEMS: _optional(_text_or(_items(ITEM))),
    CONVERSATIONS: _optional(CHATS),
    CONTENT_KIND: _optional(CONTENT),
    DOCUMENTS: _optional(union_schema([DOCUMENT, _items(DOCUMENT)], mode="left_to_right")),
}
FLAG = _optional(bool_schema(), default=False)
# Engines accept "5" and 5.0 as 5, so this is not strict.
COUNT = _optional(int_schema(ge=1))
# A number that cannot be read counts as infinite, so that it is above every limit.
NUMBER = typed_dict_field(
    nullable_schema(with_default_schema(float_schema(), default=inf, on_error="default")),
    required=False,
)
COMMON = {
    "model": _optional(STRING),
    # Engines accept 1 and "true" as true, so this is not strict either.
    "stream": FLAG,
    "stream_options": _optional(_object(include_usage=FLAG)),
    "user": _optional(STRING),
    "service_tier": _optional(STRING),
    "n": COUNT,
    "best_of": COUNT,
    "min_tokens": COUNT,
    "temperature": NUMBER,
    "cache_salt": _optional(STRING),
}

# Common fields that limits of ModelRoutes bound, whatever the API is.
SAMPLING_FIELDS = ("n", "best_of", "min_tokens", "temperature")


@cache
def request_schema(api: Api) -> SchemaValidator:
    """Make the validator of request bodies of an API."""
    fields = {name: PROMPT_FIELDS[kind] for prompt in api.prompts for name, kind in prompt.items()}
    fields |= {name: FLAG for name in api.variants if name not in fields}
    for each in (api, *api.variants.values()):
        fields |= dict.fromkeys(each.output_bounds, COUNT) | dict.fromkeys(each.logprobs, NUMBER)
    if api.stores:
        fields["previous_response_id"] = _optional(STRING)
    return SchemaValidator(_object(**COMMON, **fields))
