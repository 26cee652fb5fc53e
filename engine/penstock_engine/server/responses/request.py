"""Requests of OpenAI's Responses API, checked, and as chat requests."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock_engine.server.answers import Json
from penstock_engine.server.chat_template import ReasoningEffort
from penstock_engine.server.responses.tools import Tool, arguments_of
from penstock_engine.server.schemas import MAX_MESSAGES

LOGPROBS = "message.output_text.logprobs"

# Fields that mean the same in a chat request, OpenAI's and vLLM's own.
PASSED = (
    "allowed_token_ids", "bad_words", "cache_salt", "chat_template", "chat_template_kwargs",
    "frequency_penalty", "ignore_eos", "include_stop_str_in_output", "logit_bias", "min_p",
    "min_tokens", "model", "parallel_tool_calls", "presence_penalty", "priority",
    "repetition_penalty", "request_id", "seed", "skip_special_tokens", "stop", "stop_token_ids",
    "stream", "structured_outputs", "temperature",
    "thinking_token_budget", "top_k", "top_p", "truncate_prompt_tokens",
    "truncation_side",
)  # fmt: skip

# Parameters that name objects which only OpenAI stores.
KEPT_ELSEWHERE = ("conversation", "prompt")

# Accepted without effect: a stream always ends with its usage, and is never obfuscated.
HELD_ANYWAY = ("stream_options",)


class Part(BaseModel):
    """Text of an item. A part of another type has no text, and is refused for that."""

    type: Literal["input_text", "output_text", "text", "reasoning_text", "summary_text"]
    text: str


class Message(BaseModel):
    """status: of an answer that is sent back. One that is not complete is continued."""

    type: Literal["message"] = "message"
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]


class Reasoning(BaseModel):
    type: Literal["reasoning"]
    content: list[Part] | None = None


class FunctionCall(BaseModel):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class CustomCall(BaseModel):
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


class CallOutput(BaseModel):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: str | list[Part]


Item = Annotated[
    Message | Reasoning | FunctionCall | CustomCall | CallOutput, Field(discriminator="type")
]


class NamedTool(BaseModel):
    type: Literal["function", "custom"]
    name: str


class TextFormat(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: Literal["text", "json_object", "json_schema"]

    def as_chat(self) -> Json:
        if self.type != "json_schema":
            return {"type": self.type}
        return {"type": self.type, "json_schema": self.model_extra}


class TextOptions(BaseModel):
    """verbosity: as in a chat request, only the value that changes nothing."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


# Entries of `include`. Codex always asks for the encrypted reasoning; items here have its text.
Included = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]


class ReasoningOptions(BaseModel):
    """summary: `auto` is accepted, as Codex always sends it, and gives no summary. generate_summary:
    its older name."""

    effort: ReasoningEffort | None = None
    summary: str | None = None
    generate_summary: str | None = None

    @model_validator(mode="after")
    def _check_summary(self) -> "ReasoningOptions":
        for name in ("summary", "generate_summary"):
            if getattr(self, name) not in (None, "auto"):
                raise ValueError(
                    f"{name} must be auto or left out: reasoning is given whole, and not summarised"
                )
        return self


class ResponsesRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    input: str | Annotated[list[Item], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    stream: bool = False
    tools: list[Tool] = []
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    include: list[Included] = []
    top_logprobs: int = Field(default=0, ge=-1)
    truncation: Literal["disabled"] = "disabled"
    store: bool = True
    background: bool = False
    previous_response_id: str | None = None
    metadata: dict[str, Any] = {}
    temperature: float | None = None
    top_p: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        """null asks for the default, as in a chat request."""
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if value is not None}

    @field_validator("input", mode="before")
    @classmethod
    def _name_messages(cls, value: Any) -> Any:
        """An item without a type is a message."""
        if not isinstance(value, list):
            return value
        return [{"type": "message"} | i if isinstance(i, dict) else i for i in value]

    @model_validator(mode="after")
    def _check_memory(self) -> "ResponsesRequest":
        for name in KEPT_ELSEWHERE:
            if (self.model_extra or {}).get(name):
                raise ValueError(f"{name} is not supported: send its items as input")
        if self.background and not self.store:
            raise ValueError("background needs store: true")
        if self.background and self.stream:
            raise ValueError("background needs stream: false: poll the response until it has ended")
        return self

    @property
    def items(self) -> list[Json]:
        """The input as items."""
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return [item.model_dump(exclude_none=True) for item in self.input]

    def as_chat(self) -> Json:
        """The body of a chat request."""
        given = {"parallel_tool_calls": self.parallel_tool_calls} | (self.model_extra or {})
        given |= {"stream": self.stream, "temperature": self.temperature, "top_p": self.top_p}
        body = {name: given[name] for name in PASSED if name in given}
        body |= {
            "messages": list(self._messages()),
            "max_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning.effort,
        }
        if self.is_continued:
            body["continue_final_message"] = True
        if self.tools:
            body["tools"] = [tool.as_chat() for tool in self.tools]
            choice = self.tool_choice
            body["tool_choice"] = choice if isinstance(choice, str) else _named(choice)
        if self.text.format is not None:
            body["response_format"] = self.text.format.as_chat()
        if self.has_logprobs:
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        return body

    @property
    def is_continued(self) -> bool:
        """Whether the input ends within a message of the assistant."""
        last = None if isinstance(self.input, str) else self.input[-1]
        return (
            isinstance(last, Message)
            and last.role == "assistant"
            and last.status in ("in_progress", "incomplete")
        )

    @property
    def has_logprobs(self) -> bool:
        return LOGPROBS in self.include or self.top_logprobs != 0

    def _messages(self) -> Iterator[Json]:
        """What the assistant thought, said and called in a row is one message of a chat."""
        if self.instructions:
            yield {"role": "system", "content": self.instructions}
        if isinstance(self.input, str):
            yield {"role": "user", "content": self.input}
            return
        turn: Json = {}
        for item in self.input:
            is_own = not isinstance(item, CallOutput)
            if isinstance(item, Message):
                is_own = item.role == "assistant"
            if turn and not is_own:
                yield turn
                turn = {}
            if is_own:
                _join(turn, item)
            else:
                yield _said(item)
        if turn:
            yield turn


def _join(turn: Json, item: Item) -> None:
    turn.setdefault("role", "assistant")
    turn.setdefault("content", "")
    match item:
        case Message():
            turn["content"] += _text_of(item.content)
        case Reasoning():
            turn["reasoning"] = turn.get("reasoning", "") + _text_of(item.content or "")
        case FunctionCall():
            _add_call(turn, item.call_id, item.name, item.arguments)
        case CustomCall():
            _add_call(turn, item.call_id, item.name, arguments_of(item.input))
        case CallOutput():
            raise AssertionError("an output is not the assistant's")


def _add_call(turn: Json, call_id: str, name: str, arguments: str) -> None:
    function = {"name": name, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    turn["tool_calls"] = [*turn.get("tool_calls", ()), call]


def _said(item: Item) -> Json:
    if isinstance(item, CallOutput):
        content = _text_of(item.output)
        return {"role": "tool", "tool_call_id": item.call_id, "content": content}
    assert isinstance(item, Message)
    return {"role": item.role, "content": _text_of(item.content)}


def _text_of(content: str | list[Part]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _named(tool: NamedTool) -> Json:
    return {"type": "function", "function": {"name": tool.name}}
