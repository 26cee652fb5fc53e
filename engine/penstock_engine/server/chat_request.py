"""The request of chat completions, and the messages in it."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from penstock_engine.server.chat_template import ReasoningEffort, TemplateVariables
from penstock_engine.server.schemas import MAX_BATCH, MAX_MESSAGES, GenerationRequest
from penstock_engine.server.tools import MAX_CALLS, CallParam, ToolChoice, Tools
from penstock_engine.tokens import Tokenizer

# Fields of a message that would be words to the model, and that this engine has no words for.
UNSUPPORTED_IN_MESSAGES = ("audio", "function_call")


class TextPart(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """extra: clients send back all fields of an answer. Those that mean something to the model are
    refused when they have a value.

    role: any name; the chat template decides what it means. It cannot have the characters that
    templates write around it, such as <|im_end|>.
    """

    model_config = ConfigDict(extra="allow")

    role: str = Field(pattern=r"^[A-Za-z0-9_ .:/-]{1,64}$")
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

    @property
    def text(self) -> str:
        content = self.content or ""
        return content if isinstance(content, str) else "\n".join(part.text for part in content)

    def for_template(self, *, as_parts: bool) -> dict[str, Any]:
        """The message as the chat template reads it. as_parts: content as a list of parts, not one text."""
        reasoning = self.reasoning or self.reasoning_content
        optional = {
            "name": self.name,
            "tool_calls": [call.model_dump() for call in self.tool_calls or ()],
            "tool_call_id": self.tool_call_id,
            "reasoning": reasoning,
            "reasoning_content": reasoning,  # what most templates call it
        }
        given = {name: value for name, value in optional.items() if value}
        content = self._parts() if as_parts else self.text
        return {"role": self.role, "content": content} | given

    def _parts(self) -> list[dict[str, Any]]:
        content = self.content or []
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [{"type": "text", "text": part.text} for part in content]


class ChatCompletionRequest(GenerationRequest):
    """add_special_tokens: beside those that the template writes. add_generation_prompt None: unless
    the last message is continued."""

    logprobs_param: ClassVar[str] = "top_logprobs"

    add_special_tokens: bool = False
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=-1)
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
    def asked_max_tokens(self) -> int | None:
        given = self.max_completion_tokens
        return self.max_tokens if given is None else given

    @property
    def num_logprobs(self) -> int | None:
        return self.top_logprobs if self.logprobs else None

    @property
    def has_generation_prompt(self) -> bool:
        """Whether the prompt ends with the beginning of a new message of the assistant."""
        given = self.add_generation_prompt
        return not self.continue_final_message if given is None else given

    @property
    def continues_prompt(self) -> bool:
        return self.continue_final_message

    @property
    def answer_role(self) -> str:
        """Whose message the answer is."""
        return "assistant" if self.has_generation_prompt else self.messages[-1].role

    @property
    def echoed_text(self) -> str:
        """The message that the answer continues, where the request asks to have it again."""
        last = self.messages[-1]
        return last.text if self.echo and last.role == self.answer_role else ""

    @property
    def asked_tool_choice(self) -> ToolChoice:
        return (self.tool_choice or "auto") if self.tools else "none"


class BatchChatRequest(ChatCompletionRequest):
    """Several chats with the same parameters. messages: those of the first one."""

    conversations: Annotated[
        list[Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]],
        Field(min_length=1, max_length=MAX_BATCH),
    ]

    @property
    def chats(self) -> list[ChatCompletionRequest]:
        """A chat request for each conversation."""
        return [self.model_copy(update={"messages": each}) for each in self.conversations]


def template_variables(request: ChatCompletionRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the chat template is told beside messages and tools.

    reasoning_effort also turns thinking on or off in templates that have a switch for it, unless
    the request sets the switch itself.
    """
    variables = dict(request.chat_template_kwargs)
    effort = request.reasoning_effort
    if effort is not None:
        variables["reasoning_effort"] = effort
        if tokenizer.template_reads("enable_thinking"):
            variables.setdefault("enable_thinking", effort != "none")
    return {**tokenizer.template.variables, **variables}
