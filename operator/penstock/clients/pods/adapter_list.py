"""Parses an engine's list of adapters. Users choose the image, so the list is checked like a request."""

from collections.abc import Mapping

from pydantic_core import CoreSchema, SchemaValidator, ValidationError
from pydantic_core.core_schema import (
    TypedDictField,
    int_schema,
    list_schema,
    literal_schema,
    nullable_schema,
    str_schema,
    typed_dict_field,
    typed_dict_schema,
)

from penstock.core.adapters.replica import Copy, CopyState
from penstock.core.observed.lora_engine import LoraRuntime

# Entries of a list: an engine has at most 1,024 adapters, and vLLM lists the names of its base model too.
MAX_ENTRIES = 1280
# Bytes of a list, and JSON values in it: vLLM has some 450 bytes and 23 values for each adapter. A list is
# parsed before its entries are checked, and 0.6 MiB of nested lists would take 0.1 s of the event loop.
MAX_LIST_BYTES, MAX_LIST_VALUES = 512 * MAX_ENTRIES, 32 * MAX_ENTRIES
# Characters of a name: that of a LoraAdapter has at most 253, and its version 9.
MAX_NAME_CHARS = 300
# Largest integer that is exact as a float too: averages are computed of such numbers.
MAX_NUMBER = 1 << 53

_STATES: Mapping[str, CopyState] = {
    "device": "Resident",
    "host": "Resident",
    "disk": "Evicted",
    "loading": "Loading",
}


def _field(schema: CoreSchema) -> TypedDictField:
    return typed_dict_field(schema)


def _optional(schema: CoreSchema) -> TypedDictField:
    return typed_dict_field(nullable_schema(schema), required=False)


def _list_of(**fields: TypedDictField) -> SchemaValidator:
    """Validator of {"data": [...]}, which stops at the first bad entry.

    Fields without a schema become no Python objects.
    """
    entry = typed_dict_schema(fields, extra_behavior="ignore")
    entries = list_schema(entry, max_length=MAX_ENTRIES, fail_fast=True)
    return SchemaValidator(typed_dict_schema({"data": _field(entries)}, extra_behavior="ignore"))


_NUMBER = int_schema(ge=0, le=MAX_NUMBER)
_LISTS: Mapping[LoraRuntime, SchemaValidator] = {
    "Penstock": _list_of(
        id=_field(str_schema()),
        tier=_field(literal_schema(list(_STATES))),
        requests=_optional(_NUMBER),
        rank=_optional(_NUMBER),
        bytes=_optional(_NUMBER),
    ),
    "VLLM": _list_of(id=_field(str_schema()), parent=_optional(str_schema())),
}


def parse_copies(runtime: LoraRuntime, content: bytes) -> Mapping[str, Copy]:
    """Parse an engine's list of adapters. Raises ValueError with the reason."""
    # Each value but the first follows a comma, or is the first one in a list or an object.
    if sum(map(content.count, (b",", b"[", b"{"))) >= MAX_LIST_VALUES:
        raise ValueError(f"it has more than {MAX_LIST_VALUES} values")
    try:
        entries = _LISTS[runtime].validate_json(content)["data"]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{where}: {first['msg']}") from None
    if runtime == "VLLM":
        copies = {each["id"]: Copy("Resident") for each in entries if each.get("parent")}
    else:
        copies = {
            each["id"]: Copy(
                _STATES[each["tier"]],
                requests=each.get("requests") or 0,
                rank=each.get("rank"),
                size_bytes=each.get("bytes") or 0,
            )
            for each in entries
        }
    if any(len(name) > MAX_NAME_CHARS for name in copies):
        raise ValueError(f"it has a name of more than {MAX_NAME_CHARS} characters")
    return copies
