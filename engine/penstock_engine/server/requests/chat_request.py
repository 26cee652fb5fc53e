"""Schemas of chat completion requests and their messages."""

from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, model_validator

from penstock_engine.server.requests.chat_template import ReasoningEffort, TemplateVariables
from penstock_engine.server.requests.completion_request import MAX_MESSAGES, GenerationRequest
from penstock_engine.server.requests.content import Content
from penstock_engine.server.requests.request_model import RequestModel
from penstock_engine.server.requests.tools import MAX_CALLS, CallParam, ToolChoice, Tools
from penstock_engine.text.tokens import Tokenizer

# Fields of a message that the model would have to see, and that this engine cannot pass to it.
UNSUPPORTED_IN_MESSAGES = ("audio", "function_call")


class Message(RequestModel):
    """A message of a chat.

    Extra fields are allowed, because clients send back all fields of an answer. Those that the model
    would have to see are rejected if they have a value.

    role: any name; the chat template interprets it. The pattern excludes the characters of template
    tags such as <|im_end|>.
    """

    model_config = ConfigDict(extra="allow")

    role: str = Field(pattern=r"^[A-Za-z0-9_ .:/-]{1,64}$")
    content: Content = Field(default=[])
    name: str | None = Field(default=None, max_length=256)
    tool_calls: list[CallParam] | None = Field(default=None, max_length=MAX_CALLS)
    tool_call_id: str | None = Field(default=None, max_length=256)
    reasoning: str | None = None
    reasoning_content: str | None = None  # its older name

    @model_validator(mode="after")
    def _check_calls(self) -> "Message":
        if self.tool_calls and self.role != "assistant":
            raise ValueError("tool_calls is only allowed with role: assistant")
        return self

    @model_validator(mode="after")
    def _refuse_extras(self) -> "Message":
        extra = self.model_extra or {}
        for name in UNSUPPORTED_IN_MESSAGES:
            if extra.get(name) not in (None, [], {}, ""):
                raise ValueError(f"{name} is not supported by this engine")
        return self

    @property
    def text(self) -> str:
        return "\n".join(self.content)

    def for_template(self, *, as_parts: bool) -> dict[str, Any]:
        """Returns the message for the chat template. as_parts: content as a list of parts, not a text."""
        reasoning = self.reasoning or self.reasoning_content
        optional = {
            "name": self.name,
            "tool_calls": [call.for_template() for call in self.tool_calls or ()],
            "tool_call_id": self.tool_call_id,
            "reasoning": reasoning,
            "reasoning_content": reasoning,  # the name in most templates
        }
        given = {name: value for name, value in optional.items() if value}
        parts = [{"type": "text", "text": text} for text in self.content]
        content = parts if as_parts else self.text
        return {"role": self.role, "content": content} | given


class ChatCompletionRequest(GenerationRequest):
    """A chat completion request.

    add_special_tokens: whether the tokenizer adds its own, in addition to the template's.
    add_generation_prompt: None means true unless continue_final_message is set.
    """

    logprobs_param: ClassVar[str] = "top_logprobs"

    add_special_tokens: bool = False
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=-1, strict=True)
    tools: Tools = Field(default=[])
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    reasoning_effort: ReasoningEffort | None = None
    chat_template_kwargs: TemplateVariables = Field(default={})
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    @model_validator(mode="after")
    def _check_logprobs(self) -> "ChatCompletionRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs is only allowed with logprobs: true")
        return self

    @model_validator(mode="after")
    def _check_prompt_end(self) -> "ChatCompletionRequest":
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("continue_final_message and add_generation_prompt exclude each other")
        return self

    @property
    def requested_max_tokens(self) -> int | None:
        given = self.max_completion_tokens
        return self.max_tokens if given is None else given

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def has_generation_prompt(self) -> bool:
        """Whether the prompt ends with the opening of a new assistant message."""
        given = self.add_generation_prompt
        return not self.continue_final_message if given is None else given

    @property
    def continues_prompt(self) -> bool:
        return self.continue_final_message

    @property
    def answer_role(self) -> str:
        """The role of the answer's message."""
        return "assistant" if self.has_generation_prompt else self.messages[-1].role

    @property
    def echoed_text(self) -> str:
        """The text of the message that the answer continues, if the request wants it echoed; else ""."""
        last = self.messages[-1]
        return last.text if self.echo and last.role == self.answer_role else ""

    @property
    def effective_tool_choice(self) -> ToolChoice:
        return (self.tool_choice or "auto") if self.tools else "none"


# Conversations of one request to /v1/chat/completions/batch; bounds the work that a small body can cause.
MAX_CONVERSATIONS = 64


class BatchChatRequest(ChatCompletionRequest):
    """A batch of chats with the same parameters. messages: those of the first chat."""

    conversations: Annotated[
        list[Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]],
        Field(min_length=1, max_length=MAX_CONVERSATIONS),
    ]

    @property
    def num_prompts(self) -> int:
        return len(self.conversations)

    @property
    def chats(self) -> list[ChatCompletionRequest]:
        """The chat requests of the batch, one for each conversation."""
        return [self.model_copy(update={"messages": each}) for each in self.conversations]


def template_variables(request: ChatCompletionRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the chat template's variables, other than messages and tools.

    reasoning_effort also sets enable_thinking in templates that read it, unless the request sets it.
    """
    variables = dict(request.chat_template_kwargs)
    effort = request.reasoning_effort
    if effort is not None:
        variables["reasoning_effort"] = effort
        if tokenizer.template_reads("enable_thinking"):
            variables.setdefault("enable_thinking", effort != "none")
    return {**tokenizer.template.variables, **variables}
