"""Validation rules beyond types and bounds: in CEL for the API server, and in Python without one.

Both halves of a rule stand side by side, and a property test holds them against a real API server.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

VALIDATIONS = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation rule, with the error message for users."""

    cel: str
    holds: Callable[[Any], bool]
    message: str


def matches(pattern: str, message: str) -> Rule:
    """Rule that the whole text matches. pattern: anchored, with the same meaning in RE2 and Python."""
    whole = re.compile(pattern, re.ASCII)
    return Rule(f"self.matches('{pattern}')", lambda text: bool(whole.fullmatch(text)), message)


def _validations(rules: tuple[Rule, ...]) -> dict[str, Any]:
    """Return the `x-kubernetes-validations` of rules, for a schema."""
    return {VALIDATIONS: [{"rule": r.cel, "message": r.message} for r in rules]}


def _check(rules: tuple[Rule, ...], value: Any) -> None:
    """Raise PydanticCustomError with the message of the first rule that is violated."""
    for rule in rules:
        if not rule.holds(value):
            raise PydanticCustomError("rule", "{message}", {"message": rule.message})


class Obeys:
    """Annotates a field's type with rules."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        inner = handler(schema)
        added = _validations(self._rules)[VALIDATIONS]
        return {**inner, VALIDATIONS: [*inner.get(VALIDATIONS, []), *added]}

    def _checked(self, value: Any) -> Any:
        if value is not None:  # absent, to the API server
            _check(self._rules, value)
        return value


def _without_null_entries(entries: Any) -> Any:
    if isinstance(entries, dict):
        return {name: value for name, value in entries.items() if value is not None}
    return entries


# Annotates a map whose null entries are dropped, as the API server does.
DROP_NULL_ENTRIES = BeforeValidator(_without_null_entries)


class Model(BaseModel):
    """Base of all API objects, as strict as the API server. RULES: rules between fields.

    Unknown fields are ignored, as the API server prunes them: the CRD may be newer than the operator.
    """

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, strict=True)
    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        """Drop nulls of known fields, as the API server does."""
        if isinstance(data, dict):
            known = {field.alias for field in cls.model_fields.values()}
            return {k: v for k, v in data.items() if v is not None or k not in known}
        return data

    @model_validator(mode="after")
    def _obeys(self) -> Self:
        _check(self.RULES, self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), **(_validations(cls.RULES) if cls.RULES else {})}
