"""Tools of the Responses API, and their translation to chat tools.

A custom tool takes text. The model sees a function with one text parameter, and its calls are
translated back to calls of a custom tool.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from penstock_engine.server.answers import Json
from penstock_engine.server.deltas import Part

INPUT = "input"  # the parameter of a custom tool's function

INPUT_SCHEMA: Json = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}


class FunctionTool(BaseModel):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def as_chat(self) -> Json:
        return {
            "type": "function",
            "function": self.model_dump(exclude={"type"}, exclude_none=True),
        }


class TextInput(BaseModel):
    type: Literal["text"]


class GrammarInput(BaseModel):
    """A grammar of a custom tool's text. It is described to the model, but not enforced."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


class CustomTool(BaseModel):
    type: Literal["custom"]
    name: str
    description: str | None = None
    format: Annotated[TextInput | GrammarInput, Field(discriminator="type")] | None = None

    def as_chat(self) -> Json:
        told = [self.description] if self.description else []
        if isinstance(self.format, GrammarInput):
            told.append(f"The {INPUT} fits this {self.format.syntax}:\n{self.format.definition}")
        function: Json = {"name": self.name, "parameters": INPUT_SCHEMA}
        if told:
            function["description"] = "\n\n".join(told)
        return {"type": "function", "function": function}


# A tool of another type would be run by OpenAI.
Tool = Annotated[FunctionTool | CustomTool, Field(discriminator="type")]


def custom_names(tools: Iterable[FunctionTool | CustomTool]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools if isinstance(tool, CustomTool))


def with_custom_calls(parts: Iterable[Part], names: frozenset[str]) -> Iterator[Part]:
    """Replaces the arguments of custom tools' calls by their text input."""
    for part in parts:
        if part.kind == "call" and part.name in names:
            yield replace(part, is_custom=True, text=_input_of(part.text))
        else:
            yield part


def arguments_of(text: str) -> str:
    """The arguments of a custom tool's function for a text input."""
    return json.dumps({INPUT: text})


def _input_of(arguments: str) -> str:
    """The text input in the arguments; the arguments themselves if they do not fit the schema."""
    value = json.loads(arguments)
    given = value.get(INPUT)
    return given if isinstance(given, str) and len(value) == 1 else arguments
