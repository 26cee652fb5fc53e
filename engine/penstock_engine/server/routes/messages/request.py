"""Schemas of Anthropic's requests, and their translation to chat requests."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from penstock_engine.server.requests.chat_template import ReasoningEffort
from penstock_engine.server.requests.completion_request import MAX_MESSAGES, StopStrings
from penstock_engine.server.requests.content import Content, with_type
from penstock_engine.server.requests.request_model import RequestModel
from penstock_engine.server.transport.json_text import Json

MAX_BLOCKS = 2048

CHOICES = {"auto": "auto", "any": "required", "none": "none"}

Texts = Annotated[Content, Field(max_length=MAX_BLOCKS)]


class TextBlock(RequestModel):
    type: Literal["text"] = "text"
    text: str


class Thinking(RequestModel):
    """Reasoning of an earlier answer. redacted_thinking is encrypted: its text is left out."""

    type: Literal["thinking", "redacted_thinking"]
    thinking: str = ""


class ToolUse(RequestModel):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] = Field(default={})


class ToolResult(RequestModel):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Texts = Field(default=[])


BLOCK_TYPES = ("redacted_thinking", "text", "thinking", "tool_result", "tool_use")


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


Block = Annotated[
    Annotated[TextBlock | Thinking | ToolUse | ToolResult, Field(discriminator="type")],
    BeforeValidator(partial(with_type, known=BLOCK_TYPES)),
]
Blocks = Annotated[
    list[Block],
    Field(max_length=MAX_BLOCKS),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[Block]),
]


class Message(RequestModel):
    role: Literal["user", "assistant", "system"]
    content: Blocks = Field(default=[])

    def as_chat(self) -> Iterator[Json]:
        """Yields the equivalent chat messages. Each tool result becomes a message of its own."""
        for block in self.content:
            if isinstance(block, ToolResult):
                content = "\n".join(block.content)
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}
        texts = [block.text for block in self.content if isinstance(block, TextBlock)]
        calls = [_call(block) for block in self.content if isinstance(block, ToolUse)]
        reasoning = [block.thinking for block in self.content if isinstance(block, Thinking)]
        if texts or calls:
            message: Json = {"role": self.role, "content": "".join(texts)}
            if calls:
                message["tool_calls"] = calls
            if any(reasoning):
                message["reasoning"] = "".join(reasoning)
            yield message


class Tool(RequestModel):
    """A tool that the client runs. Tools that Anthropic runs have other types, and are rejected."""

    type: Literal["custom"] = "custom"
    name: str
    description: str = ""
    input_schema: dict[str, Any]
    strict: bool = False

    def as_chat(self) -> Json:
        function: Json = {"name": self.name, "parameters": self.input_schema}
        if self.description:
            function["description"] = self.description
        if self.strict:
            function["strict"] = True
        return {"type": "function", "function": function}


class ToolChoice(RequestModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    @model_validator(mode="after")
    def _check_name(self) -> "ToolChoice":
        if (self.type == "tool") != bool(self.name):
            raise ValueError("name goes with type: tool")
        return self

    def as_chat(self) -> Json:
        named = {"type": "function", "function": {"name": self.name}}
        choice = named if self.type == "tool" else CHOICES[self.type]
        return {"tool_choice": choice, "parallel_tool_calls": not self.disable_parallel_tool_use}


class OutputFormat(RequestModel):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(RequestModel):
    effort: ReasoningEffort | None = None
    format: OutputFormat | None = None


class ThinkingConfig(RequestModel):
    """Reasoning settings. budget_tokens: maximum reasoning tokens, required with type enabled only."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(default=None, ge=1, strict=True)

    @model_validator(mode="after")
    def _check_budget(self) -> "ThinkingConfig":
        if (self.type == "enabled") != (self.budget_tokens is not None):
            raise ValueError("budget_tokens goes with type: enabled")
        return self


class CountTokensRequest(RequestModel):
    """The fields of a request that affect its prompt."""

    model: str | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: Texts = Field(default=[])
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig = OutputConfig()

    def as_chat(self) -> Json:
        """Returns the body of the equivalent chat request."""
        system = "\n".join(self.system)
        messages: list[Json] = [{"role": "system", "content": system}] if system else []
        messages += [each for message in self.messages for each in message.as_chat()]
        effort = self.output_config.effort
        body: Json = {"model": self.model, "messages": messages, "reasoning_effort": effort}
        if self.tools:
            body["tools"] = [tool.as_chat() for tool in self.tools]
            body |= {} if self.tool_choice is None else self.tool_choice.as_chat()
        return body


class MessagesRequest(CountTokensRequest):
    """A request of /v1/messages. output_format: older name of output_config.format."""

    max_tokens: int = Field(ge=1)
    stop_sequences: StopStrings | None = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    output_format: OutputFormat | None = None
    cache_salt: str | None = None
    priority: int | None = None

    @model_validator(mode="after")
    def _check_thinking(self) -> "MessagesRequest":
        budget = self.thinking and self.thinking.budget_tokens
        if budget and budget >= self.max_tokens:
            raise ValueError("thinking.budget_tokens must be less than max_tokens")
        return self

    def as_chat(self) -> Json:
        body = super().as_chat() | {
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "cache_salt": self.cache_salt,
            "priority": self.priority,
        }
        if self.thinking is not None:
            body["thinking_token_budget"] = self.thinking.budget_tokens
        output_format = self.output_config.format or self.output_format
        if output_format is not None:
            schema = {"name": "answer", "schema": output_format.schema_}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if self.stream:
            # message_start, the first event, needs the number of prompt tokens.
            options = {"include_usage": True, "continuous_usage_stats": True}
            body |= {"stream": True, "stream_options": options}
        return body


def _call(block: ToolUse) -> Json:
    function = {"name": block.name, "arguments": json.dumps(block.input)}
    return {"id": block.id, "type": "function", "function": function}
