"""Schemas of tools and tool calls in OpenAI's chat."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, model_validator

from penstock_engine.parsers.json_scan import read_json
from penstock_engine.parsers.tool_format import Tool
from penstock_engine.server.requests.request_model import OBJECT, TEXT, TEXT_OR_OBJECT, RequestModel

MAX_TOOLS = 128
MAX_CALLS = 128
MAX_CALL_ID_CHARS = 256

Name = Annotated[str, Field(pattern=r"\A[A-Za-z0-9_.-]{1,64}\z")]

NO_PARAMETERS: dict[str, Any] = {
    "type": "object", "properties": {}, "additionalProperties": False
}  # fmt: skip


class Strict(RequestModel):
    """Base of models with strict types. Unknown fields, such as cache_control, are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)


class Function(Strict):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _check_parameters(self) -> "Function":
        if (self.parameters or {}).get("type", "object") != "object":
            raise ValueError("parameters must be a schema of type object")
        return self


class ToolParam(Strict):
    type: Literal["function"] = "function"
    function: Function

    def for_template(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True, exclude={"function": {"strict"}})

    def tool(self) -> Tool:
        parameters = self.function.parameters
        return Tool(
            self.function.name,
            NO_PARAMETERS if parameters is None else parameters,
            is_strict=bool(self.function.strict),
        )


def _check_names(tools: list[ToolParam]) -> list[ToolParam]:
    if len({tool.function.name for tool in tools}) != len(tools):
        raise ValueError("the names of tools must differ")
    return tools


Tools = Annotated[list[ToolParam], Field(max_length=MAX_TOOLS), AfterValidator(_check_names)]


class FunctionName(Strict):
    name: Name


class NamedTool(Strict):
    type: Literal["function"] = "function"
    function: FunctionName


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], TEXT] | Annotated[NamedTool, OBJECT],
    TEXT_OR_OBJECT,
]


def _parse_arguments(value: Any) -> dict[str, Any] | str:
    """Parses a call's arguments: JSON as text, or an object, as some servers write it. Raises ValueError.

    Text that is not JSON stays text, because a model can have written it, and the conversation goes on.
    """
    try:
        arguments = read_json(value or "{}") if isinstance(value, str) else value
    except ValueError:
        return str(value)
    except RecursionError as error:
        raise ValueError("must be a JSON object, or its text") from error
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise ValueError("must be a JSON object, or its text")
    return arguments


class CalledFunction(Strict):
    """A called function. name: what a model has called, which need not be a name of a tool."""

    name: str = Field(min_length=1, max_length=MAX_CALL_ID_CHARS)
    arguments: Annotated[dict[str, Any] | str, PlainValidator(_parse_arguments)] = Field(default={})


class CallParam(Strict):
    """A tool call in an earlier assistant message. Clients send back all of its fields."""

    id: str | None = Field(default=None, max_length=MAX_CALL_ID_CHARS)
    type: Literal["function"] = "function"
    function: CalledFunction

    def for_template(self) -> dict[str, Any]:
        return self.model_dump(exclude={"id"} if self.id is None else None)
