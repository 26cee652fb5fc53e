"""Schemas of the Responses API's tools, and their translation to chat tools.

A custom tool takes text. It is translated to a function with one text parameter, and the model's calls
of the function are translated back to calls of the custom tool.
"""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field

from penstock_engine.server.requests.request_model import RequestModel
from penstock_engine.server.transport.json_text import Json

INPUT = "input"  # the parameter of a custom tool's function

INPUT_SCHEMA: Json = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}


class FunctionTool(RequestModel):
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


class TextInput(RequestModel):
    type: Literal["text"]


class GrammarInput(RequestModel):
    """A grammar of a custom tool's text. It is described to the model but not enforced."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


class CustomTool(RequestModel):
    type: Literal["custom"]
    name: str
    description: str | None = None
    format: Annotated[TextInput | GrammarInput, Field(discriminator="type")] | None = None

    def as_chat(self) -> Json:
        texts = [self.description] if self.description else []
        if isinstance(self.format, GrammarInput):
            texts.append(f"The {INPUT} fits this {self.format.syntax}:\n{self.format.definition}")
        function: Json = {"name": self.name, "parameters": INPUT_SCHEMA}
        if texts:
            function["description"] = "\n\n".join(texts)
        return {"type": "function", "function": function}


# Tools of other types are run by OpenAI, and are rejected.
Tool = Annotated[FunctionTool | CustomTool, Field(discriminator="type")]


def custom_names(tools: Iterable[FunctionTool | CustomTool]) -> frozenset[str]:
    """Returns the names of the custom tools."""
    return frozenset(tool.name for tool in tools if isinstance(tool, CustomTool))


def arguments_of(text: str) -> str:
    """Returns the arguments of a custom tool's function for a text input."""
    return json.dumps({INPUT: text})
