"""Replaces the model's name in the body of a request, and leaves all other bytes as they are."""

import re

from pydantic_core import SchemaValidator, from_json, to_json
from pydantic_core.core_schema import str_schema, typed_dict_field, typed_dict_schema

KEY = b'"model"'
FIELD = re.compile(KEY + rb'\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")')
# Most occurrences of the key that are tried. Each try validates the whole body. Nested objects, such as
# tools, may have the key too. After that the body is written again.
MAX_PLACES = 8
MODEL = SchemaValidator(
    typed_dict_schema({"model": typed_dict_field(str_schema(strict=True))}, extra_behavior="ignore")
)


def replace_model(body: bytes, old: str, new: str) -> bytes:
    """Return the body with another value of its field `model`. body: JSON in which that is `old`.

    Parsing all of a body into Python objects and writing it again takes 0.2 s for 4 MiB of small fields.
    """
    place = -1
    for _ in range(MAX_PLACES):
        place = body.find(KEY, place + 1)
        if place < 0:
            break
        field = FIELD.match(body, place)
        if field is None or from_json(field[1]) != old:
            continue
        replaced = body[: field.start(1)] + to_json(new) + body[field.end(1) :]
        # The field may be that of another object, or one that a later one of the same name overrides.
        if MODEL.validate_json(replaced)["model"] == new:
            return replaced
    return to_json(from_json(body) | {"model": new})
