"""The request of chat completions, and the messages in it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from penstock_engine.server.schemas import MAX_LOGPROBS, MAX_MESSAGES, GenerationRequest
from penstock_engine.server.tools import MAX_CALLS, CallParam, ToolChoice, Tools

# Fields of a message that would be words to the model, and that this engine has no words for.
UNSUPPORTED_IN_MESSAGES = ("audio", "function_call")


class TextPart(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """extra: clients send back all fields of an answer. Those that mean something to the model are
    refused when they have a value."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = Field(default=None, max_length=256)
    tool_calls: list[CallParam] | None = Field(default=None, max_length=MAX_CALLS)
    tool_call_id: str | None = Field(default=None, max_length=256)
    reasoning: str | None = None
    reasoning_content: str | None = None  # its older name

    @model_validator(mode="after")
    def _check_calls(self) -> "Message":
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls is only allowed with role: assistant")
        if self.role == "tool" and not self.tool_call_id:
            raise ValueError("a message of role tool needs the tool_call_id that it answers")
        return self

    @model_validator(mode="after")
    def _refuse_extras(self) -> "Message":
        extra = self.model_extra or {}
        for name in UNSUPPORTED_IN_MESSAGES:
            if extra.get(name) not in (None, [], {}, ""):
                raise ValueError(f"{name} is not supported by this engine")
        return self

    def for_template(self) -> dict[str, Any]:
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        reasoning = self.reasoning or self.reasoning_content
        optional = {
            "name": self.name,
            "tool_calls": [call.model_dump() for call in self.tool_calls or ()],
            "tool_call_id": self.tool_call_id,
            "reasoning": reasoning,
            "reasoning_content": reasoning,  # what most templates call it
        }
        given = {name: value for name, value in optional.items() if value}
        return {"role": self.role, "content": text} | given


class TemplateOptions(BaseModel):
    """What a chat template can be told. Others could be anything that a template reads."""

    model_config = ConfigDict(extra="forbid", strict=True)

    enable_thinking: bool | None = None
    thinking: bool | None = None


class ChatCompletionRequest(GenerationRequest):
    add_special_tokens: Literal[False] = False  # the template writes them
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MAX_LOGPROBS)
    echo: Literal[False] = False
    tools: Tools = Field(default=[])
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    chat_template_kwargs: TemplateOptions = TemplateOptions()

    @model_validator(mode="after")
    def _check_logprobs(self) -> "ChatCompletionRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs is only allowed with logprobs: true")
        return self

    @property
    def asked_max_tokens(self) -> int | None:
        given = self.max_completion_tokens
        return self.max_tokens if given is None else given

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def asked_tool_choice(self) -> ToolChoice:
        return (self.tool_choice or "auto") if self.tools else "none"
