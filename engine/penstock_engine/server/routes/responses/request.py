"""Schemas of requests of OpenAI's Responses API, and their translation to chat requests."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from penstock_engine.server.requests.chat_template import ReasoningEffort
from penstock_engine.server.requests.completion_request import MAX_MESSAGES
from penstock_engine.server.requests.content import Content, with_type
from penstock_engine.server.requests.request_model import OBJECT, TEXT, TEXT_OR_OBJECT, RequestModel
from penstock_engine.server.routes.responses.tools import Tool, arguments_of
from penstock_engine.server.transport.json_text import Json

LOGPROBS = "message.output_text.logprobs"

# Fields of OpenAI and vLLM that have the same meaning in a chat request.
SAME_IN_CHAT = (
    "allowed_token_ids", "bad_words", "cache_salt", "chat_template", "chat_template_kwargs",
    "frequency_penalty", "ignore_eos", "include_stop_str_in_output", "logit_bias", "min_p",
    "min_tokens", "model", "parallel_tool_calls", "presence_penalty", "priority",
    "repetition_penalty", "request_id", "seed", "skip_special_tokens", "stop", "stop_token_ids",
    "stream", "structured_outputs", "temperature",
    "thinking_token_budget", "top_k", "top_p", "truncate_prompt_tokens",
    "truncation_side",
)  # fmt: skip

# Parameters that refer to objects stored at OpenAI.
STORED_AT_OPENAI = ("conversation", "prompt")

# Accepted parameters without effect: a stream always ends with its usage, and is never obfuscated.
IGNORED = ("stream_options",)


class Message(RequestModel):
    """A message. status: of an answer that is sent back; the model continues an incomplete one."""

    type: Literal["message"] = "message"
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content = Field(default=[])


class Reasoning(RequestModel):
    type: Literal["reasoning"]
    content: Content = Field(default=[])


class FunctionCall(RequestModel):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: Annotated[Annotated[str, TEXT] | Annotated[Json, OBJECT], TEXT_OR_OBJECT]


class CustomCall(RequestModel):
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str


class CallOutput(RequestModel):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content = Field(default=[])


ITEM_TYPES = (
    "custom_tool_call", "custom_tool_call_output", "function_call", "function_call_output", "message",
    "reasoning",
)  # fmt: skip


def _with_type(item: Any) -> Json:
    refusal = "is not supported by this engine"
    return with_type(item, ITEM_TYPES, default="message", refusal=refusal)


def _as_items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


Item = Annotated[
    Annotated[
        Message | Reasoning | FunctionCall | CustomCall | CallOutput, Field(discriminator="type")
    ],
    BeforeValidator(_with_type),
]


class NamedTool(RequestModel):
    type: Literal["function", "custom"]
    name: str


class TextFormat(RequestModel):
    model_config = ConfigDict(extra="allow")

    type: Literal["text", "json_object", "json_schema"]

    def as_chat(self) -> Json:
        if self.type != "json_schema":
            return {"type": self.type, **(self.model_extra or {})}
        return {"type": self.type, "json_schema": self.model_extra}


class TextOptions(RequestModel):
    """Settings of the output text. verbosity: only medium, which has no effect."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


# Values of `include`. Codex always sends the second one; it has no effect, as items have the text.
IncludeValue = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]


class ReasoningOptions(RequestModel):
    """Reasoning settings.

    summary, and its older name generate_summary: only `auto`, which Codex always sends and which has
    no effect.
    """

    effort: ReasoningEffort | None = None
    summary: str | None = None
    generate_summary: str | None = None

    @model_validator(mode="after")
    def _check_summary(self) -> "ReasoningOptions":
        for name in ("summary", "generate_summary"):
            if getattr(self, name) not in (None, "auto"):
                raise ValueError(
                    f"{name} must be auto or left out: reasoning is given whole, and not summarized"
                )
        return self


class ResponsesRequest(RequestModel):
    """A request of /v1/responses."""

    model_config = ConfigDict(extra="allow")

    input: Annotated[
        list[Item],
        Field(min_length=1, max_length=MAX_MESSAGES),
        BeforeValidator(_as_items, json_schema_input_type=str | list[Item]),
    ]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    stream: bool = False
    tools: list[Tool] = Field(default=[])
    tool_choice: Annotated[
        Annotated[Literal["auto", "none", "required"], TEXT] | Annotated[NamedTool, OBJECT],
        TEXT_OR_OBJECT,
    ] = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    include: list[IncludeValue] = Field(default=[])
    top_logprobs: int = Field(default=0, ge=-1, strict=True)
    truncation: Literal["auto", "disabled"] = "disabled"
    store: bool = True
    background: bool = False
    previous_response_id: str | None = None
    metadata: dict[str, Any] = Field(default={})
    temperature: float | None = None
    top_p: float | None = None

    @model_validator(mode="after")
    def _check_memory(self) -> "ResponsesRequest":
        for name in STORED_AT_OPENAI:
            if (self.model_extra or {}).get(name):
                raise ValueError(f"{name} is not supported: send its items as input")
        if self.background and not self.store:
            raise ValueError("background needs store: true")
        if self.background and self.stream:
            raise ValueError("background needs stream: false: poll the response until it has ended")
        return self

    @property
    def items(self) -> list[Json]:
        """The input as a list of items."""
        return [item.model_dump(exclude_none=True) for item in self.input]

    def as_chat(self) -> Json:
        """Returns the body of the equivalent chat request."""
        fields = {"parallel_tool_calls": self.parallel_tool_calls} | (self.model_extra or {})
        fields |= {"stream": self.stream, "temperature": self.temperature, "top_p": self.top_p}
        body = {name: fields[name] for name in SAME_IN_CHAT if name in fields}
        body |= {
            "messages": list(self._messages()),
            "max_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning.effort,
        }
        if self.truncation == "auto":
            body.setdefault("truncate_prompt_tokens", -1)
        if self.is_continued:
            body["continue_final_message"] = True
        if self.tools:
            body["tools"] = [tool.as_chat() for tool in self.tools]
            choice = self.tool_choice
            body["tool_choice"] = choice if isinstance(choice, str) else _named_tool(choice)
        if self.text.format is not None:
            body["response_format"] = self.text.format.as_chat()
        if self.has_logprobs:
            body |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        return body

    @property
    def is_continued(self) -> bool:
        """Whether the input ends with an incomplete assistant message, which the answer continues."""
        last = self.input[-1]
        return (
            isinstance(last, Message)
            and last.role == "assistant"
            and last.status in ("in_progress", "incomplete")
        )

    @property
    def has_logprobs(self) -> bool:
        return LOGPROBS in self.include or self.top_logprobs != 0

    def _messages(self) -> Iterator[Json]:
        """Yields chat messages. Adjacent items of the assistant become one message."""
        if self.instructions:
            yield {"role": "system", "content": self.instructions}
        turn: Json = {}
        for item in self.input:
            is_assistant = not isinstance(item, CallOutput)
            if isinstance(item, Message):
                is_assistant = item.role == "assistant"
            if turn and not is_assistant:
                yield turn
                turn = {}
            if is_assistant:
                _add_to_turn(turn, item)
            else:
                yield _chat_message(item)
        if turn:
            yield turn


def _add_to_turn(turn: Json, item: Item) -> None:
    turn.setdefault("role", "assistant")
    turn.setdefault("content", "")
    match item:
        case Message():
            turn["content"] += "".join(item.content)
        case Reasoning():
            turn["reasoning"] = turn.get("reasoning", "") + "".join(item.content)
        case FunctionCall():
            _add_call(turn, item.call_id, item.name, item.arguments)
        case CustomCall():
            _add_call(turn, item.call_id, item.name, arguments_of(item.input))
        case CallOutput():
            raise AssertionError("an output is not the assistant's")


def _add_call(turn: Json, call_id: str, name: str, arguments: str | Json) -> None:
    function = {"name": name, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    turn["tool_calls"] = [*turn.get("tool_calls", ()), call]


def _chat_message(item: Item) -> Json:
    if isinstance(item, CallOutput):
        content = "".join(item.output)
        return {"role": "tool", "tool_call_id": item.call_id, "content": content}
    assert isinstance(item, Message)
    return {"role": item.role, "content": "".join(item.content)}


def _named_tool(tool: NamedTool) -> Json:
    return {"type": "function", "function": {"name": tool.name}}
