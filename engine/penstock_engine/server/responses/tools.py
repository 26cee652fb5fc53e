"""Tools of the Responses API, and as tools of a chat.

A custom tool takes text. To the model it is a function with one text parameter, and its calls are
written back as calls of a custom tool.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from penstock_engine.server.answers import Json
from penstock_engine.server.deltas import Part

INPUT = "input"  # the parameter of the function that a custom tool is to the model

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
    """Told to the model, which is not held to it."""

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
    """Parts of a chat, in which calls of custom tools have their input instead of arguments."""
    for part in parts:
        if part.kind == "call" and part.name in names:
            yield replace(part, is_custom=True, text=_input_of(part.text))
        else:
            yield part


def arguments_of(text: str) -> str:
    """The arguments of the function that a custom tool is to the model."""
    return json.dumps({INPUT: text})


def _input_of(arguments: str) -> str:
    """A model that is not held to the schema may have written other arguments."""
    value = json.loads(arguments)
    given = value.get(INPUT)
    return given if isinstance(given, str) and len(value) == 1 else arguments
