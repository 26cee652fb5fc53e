"""Content of messages in all APIs: a text, or a list of parts with texts."""

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator

# The field of a part that has its text, by the part's type: in OpenAI's chats and responses, in
# Anthropic's messages, and in histories that clients convert between them. vLLM reads the same types.
TEXT_FIELDS = {
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
    "summary_text": "text",
    "text": "text",
    "thinking": "thinking",
}

TEXT_ONLY = "is not supported: this model reads text only"


def with_type(
    value: Any, known: Collection[str], *, default: str = "text", refusal: str = TEXT_ONLY
) -> dict[str, Any]:
    """Returns an object with its type, or with the default one. Raises ValueError for an unknown type.

    refusal: what the error says of an unknown type.
    """
    if not isinstance(value, dict):
        raise ValueError("must be an object with a type")
    kind = value.get("type") or default
    if not isinstance(kind, str):
        raise ValueError("type must be a text")
    if kind not in known:
        raise ValueError(f"{kind[:64]} {refusal}")
    return {**value, "type": kind}


def _read_text(value: Any) -> str:
    """Returns the text of a part. Raises ValueError."""
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise ValueError("must be a text, or an object with a type")
    part = with_type(value, TEXT_FIELDS)
    name = TEXT_FIELDS[part["type"]]
    text = part.get(name)
    if not isinstance(text, str):
        raise ValueError(f"{name} must be a text")
    return text


def as_parts(value: Any) -> Any:
    """Returns content as a list of parts. Raises ValueError if it is neither a text nor a list."""
    if isinstance(value, str):
        return [value] if value else []
    if not isinstance(value, list):
        raise ValueError("must be a text or a list of parts")
    return value


# The text of a part.
Text = Annotated[str, PlainValidator(_read_text, json_schema_input_type=str | dict[str, Any])]
# The texts of all parts.
Content = Annotated[
    list[Text],
    BeforeValidator(as_parts, json_schema_input_type=str | list[str | dict[str, Any]]),
]
