"""Base of the schemas of requests and of the objects in them."""

from typing import Any

from pydantic import BaseModel, Discriminator, Tag, model_validator


class RequestModel(BaseModel):
    """A schema that reads null as the default of a field, as many clients write fields that are not set."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: inner for name, inner in value.items() if inner is not None}


# Tags of a field that is a text or an object. An error then says what is wrong with the one that was sent.
TEXT, OBJECT = Tag("text"), Tag("object")
TEXT_OR_OBJECT = Discriminator(lambda value: "text" if isinstance(value, str) else "object")
