"""Base of the schemas of requests and of the objects in them."""

from typing import Any

from pydantic import BaseModel, model_validator


class RequestModel(BaseModel):
    """A schema that reads null as the default of a field, as many clients write fields that are not set."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: inner for name, inner in value.items() if inner is not None}
