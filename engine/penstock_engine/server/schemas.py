"""Requests of the OpenAI-compatible routes, checked and capped before any work is done."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from penstock_engine.server.errors import RequestError, from_validation
from penstock_engine.server.formats import ResponseFormat, StructuredOutputs
from penstock_engine.server.tools import MAX_CALLS, CallParam, ToolChoice, Tools

logger = logging.getLogger(__name__)

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_STOP_TOKENS = 256
MAX_MESSAGES = 2048
MAX_BATCH = 64
MAX_CHOICES = 128
MAX_LOGPROBS = 20
MAX_BIASES = 1024
MAX_BAD_WORDS = 128
MAX_ALLOWED_TOKENS = 1_000_000

# Parameters of vLLM and OpenAI that this engine does not have, and the values (beside null) with
# which they change nothing. Any other value is refused: ignoring it would give another answer than
# was asked for.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "ec_transfer_params": ({},),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "kv_transfer_params": ({},),
    "length_penalty": (1, 1.0),
    "logprob_token_ids": ([],),
    "media_io_kwargs": ({},),
    "mm_payload": ({},),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "prediction": (),
    "prompt_embeds": (),
    "reasoning_effort": (),
    "repetition_detection": (),
    "return_mm_kwargs": (False,),
    "return_prompt_text": (False,),
    "return_token_offsets": (False,),
    "routed_experts_prompt_start": (),
    "stream_interval": (1,),
    "suffix": ("",),
    "thinking_token_budget": (),
    "truncate_prompt_tokens": (),
    "truncation_side": (),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "vllm_xargs": ({},),
    "watermarking": (False, {}),
    "web_search_options": (),
}

# Parameters that have no bearing on the answer of an engine without users and accounts.
WITHOUT_EFFECT = frozenset(
    {
        "metadata", "prompt_cache_key",
        "safety_identifier", "service_tier", "session_id", "spaces_between_special_tokens",
        "store", "user",
    }
)  # fmt: skip

# Fields of a message that would be words to the model, and that this engine has no words for.
UNSUPPORTED_IN_MESSAGES = ("audio", "function_call")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
StopStrings = Annotated[
    list[StopString],
    BeforeValidator(_as_list, json_schema_input_type=StopString | list[StopString]),
    Field(max_length=MAX_STOP_STRINGS),
]
TokenId = Annotated[int, Field(ge=0)]
BadWord = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


def _by_token(value: Any) -> dict[int, float]:
    """{"50256": -100}: JSON has token ids as strings."""
    if not isinstance(value, dict) or len(value) > MAX_BIASES:
        raise ValueError(f"must be an object of at most {MAX_BIASES} token ids")
    biases: dict[int, float] = {}
    for token, bias in value.items():
        if not token.isascii() or not token.isdigit() or len(token) > 9:
            raise ValueError("must have token ids as its keys")
        if type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise ValueError("must have numbers from -100 to 100 as its values")
        biases[int(token)] = float(bias)
    return biases


LogitBias = Annotated[
    dict[int, float], PlainValidator(_by_token, json_schema_input_type=dict[str, float])
]


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerationRequest(BaseModel):
    """What completions and chat completions share. None: the default of OpenAI's API.

    As lenient as vLLM: "5" is taken for 5, and parameters that nobody knows are left out.
    """

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    wants_embedding: ClassVar[bool] = False

    model: str | None = None
    request_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,128}$")
    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int | None = Field(default=None, ge=0)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=1_000_000)
    min_p: float | None = Field(default=None, ge=0, le=1)
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=100)
    logit_bias: LogitBias = {}
    bad_words: list[BadWord] = Field(default=[], max_length=MAX_BAD_WORDS)
    allowed_token_ids: list[TokenId] | None = Field(
        default=None, min_length=1, max_length=MAX_ALLOWED_TOKENS
    )
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    echo: bool = False
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: StopStrings = []
    stop_token_ids: list[TokenId] | None = Field(default=None, max_length=MAX_STOP_TOKENS)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    stream: bool = False
    stream_options: StreamOptions | None = None
    priority: int = Field(default=0, ge=-(2**31), lt=2**31)
    cache_salt: str | None = Field(default=None, min_length=1, max_length=256)
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None

    @model_validator(mode="after")
    def _check_together(self) -> "GenerationRequest":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed with stream: true")
        if self.response_format is not None and self.structured_outputs is not None:
            raise ValueError("response_format and structured_outputs exclude each other")
        if self.stream and self.prompt_logprobs is not None:
            raise ValueError("prompt_logprobs is only allowed with stream: false")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def usage_in_every_chunk(self) -> bool:
        return self.include_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats
        )

    @property
    def asked_max_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """How many of the best tokens are told beside each drawn one; None: nothing is told.

        Each route has a field of its own for it.
        """
        return None


Prompt = str | list[int]


def prompts(value: Any) -> list[Prompt]:
    """A text, its tokens, or a list of either: one entry for each choice of the answer."""
    if isinstance(value, str) or (isinstance(value, list) and value and _is_tokens(value)):
        return [value]
    if not isinstance(value, list) or not value:
        raise ValueError("must be a text, a list of token ids, or a list of either, and not empty")
    if len(value) > MAX_BATCH:
        raise ValueError(f"must not have more than {MAX_BATCH} entries")
    if not all(isinstance(entry, str) or _is_tokens(entry) for entry in value):
        raise ValueError("must be made of texts, or of lists of token ids")
    return value


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int and token >= 0 for token in value)


class CompletionRequest(GenerationRequest):
    add_special_tokens: bool = True
    prompt: Annotated[
        list[Prompt],
        PlainValidator(
            prompts, json_schema_input_type=str | list[TokenId] | list[str | list[TokenId]]
        ),
    ]
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)

    @model_validator(mode="after")
    def _check_echo(self) -> "CompletionRequest":
        if self.echo and self.stream:
            raise ValueError("echo is only allowed with stream: false")
        return self

    @property
    def asked_max_tokens(self) -> int | None:
        return 16 if self.max_tokens is None else self.max_tokens  # OpenAI's default here

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs


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
    tools: Tools = []
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


Request = TypeVar("Request", bound=GenerationRequest)
Model = TypeVar("Model", bound=BaseModel)

NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


def parse(schema: type[Request], raw: bytes, defaults: Mapping[str, Any] = NO_DEFAULTS) -> Request:
    """The checked request of a body. Raises RequestError with the name of what is wrong."""
    return request_of(schema, read_object(raw), defaults)


def request_of(
    schema: type[Request], body: Mapping[str, Any], defaults: Mapping[str, Any] = NO_DEFAULTS
) -> Request:
    """defaults: of parameters that the body leaves out, already checked. Raises RequestError."""
    return checked(schema, {**defaults, **_known(body, schema)})


def read_object(raw: bytes) -> dict[str, Any]:
    """Raises RequestError for what is no JSON object."""
    try:
        # Refuses NaN, deep nesting, huge numbers and lone surrogates.
        body = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(400, "the body is not valid JSON") from error
    if not isinstance(body, dict):
        raise RequestError(400, "the body must be a JSON object")
    return body


def checked(schema: type[Model], body: Mapping[str, Any]) -> Model:
    """Raises RequestError with the name of the field that is wrong."""
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise from_validation(error) from error


def _known(body: Mapping[str, Any], schema: type[GenerationRequest]) -> dict[str, Any]:
    """The parameters that the engine has. Raises RequestError for a known one that it lacks."""
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in body.items():
        if name in schema.model_fields:
            if value is not None:  # null asks for the default
                known[name] = value
        elif name in NEUTRAL:
            if value is not None and not any(_is_same(value, neutral) for neutral in NEUTRAL[name]):
                raise RequestError(
                    400, f"{name} is not supported by this engine: leave it out", param=name
                )
        elif name not in WITHOUT_EFFECT:
            unknown.append(name[:64])
    if unknown:
        logger.debug("ignored, since nobody knows them: %s", unknown[:16])
    return known


def _is_same(value: Any, neutral: Any) -> bool:
    return type(value) is type(neutral) and bool(value == neutral)
