"""Schemas of completion requests, and the fields they share with chat completions, with limits."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    model_validator,
)

from penstock_engine.server.requests.formats import ResponseFormat, StructuredOutputs
from penstock_engine.server.requests.request_model import RequestModel

# Limits of one request, in entries or characters: they bound the work that a small body can cause.
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_STOP_TOKENS = 256
MAX_MESSAGES = 2048
MAX_LOGPROB_TOKENS = 128
MAX_SALT_CHARS = 128
MAX_BIASES = 1024
MAX_BAD_WORDS = 128
MAX_ALLOWED_TOKENS = 1_000_000


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


def _parse_logit_bias(value: Any) -> dict[int, float]:
    """Converts a logit_bias such as {"50256": -100}, whose token ids are strings in JSON."""
    if not isinstance(value, dict) or len(value) > MAX_BIASES:
        raise ValueError(f"must be an object of at most {MAX_BIASES} token ids")
    biases: dict[int, float] = {}
    others = [token for token in value if not _is_token_id(token)]
    if others:
        named = ", ".join(repr(token[:32]) for token in others[:5])
        raise ValueError(f"must have token ids as its keys, not {named}")
    for token, bias in value.items():
        if type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise ValueError("must have numbers from -100 to 100 as its values")
        biases[int(token)] = float(bias)
    return biases


def _is_token_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


LogitBias = Annotated[
    dict[int, float], PlainValidator(_parse_logit_bias, json_schema_input_type=dict[str, float])
]


def _check_salt(salt: str) -> str:
    if any(char in salt for char in "/\\@\0"):
        raise ValueError("must not contain / \\ @ or the character NUL")
    return salt


CacheSalt = Annotated[
    str, Field(min_length=1, max_length=MAX_SALT_CHARS), AfterValidator(_check_salt)
]


class StreamOptions(RequestModel):
    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False
    continuous_usage_stats: bool = False


@dataclass(frozen=True, slots=True)
class Truncation:
    """How to truncate a prompt.

    num_tokens: its maximum length; -1: what the context has room for. side: the end to cut off.
    """

    num_tokens: int
    side: Literal["left", "right"]

    def cut(self, ids: list[int], most: int) -> list[int]:
        """Returns the tokens that are kept. most: number of tokens that the context has room for."""
        length = most if self.num_tokens == -1 else self.num_tokens
        if length >= len(ids):
            return ids
        return ids[len(ids) - length :] if self.side == "left" else ids[:length]


class GenerationRequest(BaseModel):
    """Fields that completions and chat completions share. None means the default of OpenAI's API.

    Validation is as lenient as vLLM's: "5" is accepted for 5, and unknown parameters are ignored.
    """

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    wants_embedding: ClassVar[bool] = False
    logprobs_param: ClassVar[str] = "logprobs"

    model: str | None = None
    request_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,128}$")
    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int | None = Field(default=None, ge=0)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    # Some clients write the largest 32-bit integer for no limit.
    top_k: int | None = Field(default=None, ge=-1, lt=2**31)
    min_p: float | None = Field(default=None, ge=0, le=1)
    n: int = Field(default=1, ge=1)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    repetition_penalty: float = Field(default=1.0, ge=0.01, le=100)
    logit_bias: LogitBias = {}
    bad_words: list[BadWord] = Field(default=[], max_length=MAX_BAD_WORDS)
    allowed_token_ids: list[TokenId] | None = Field(
        default=None, min_length=1, max_length=MAX_ALLOWED_TOKENS
    )
    prompt_logprobs: int | None = Field(default=None, ge=-1, strict=True)
    logprob_token_ids: list[TokenId] | None = Field(
        default=None, min_length=1, max_length=MAX_LOGPROB_TOKENS
    )
    thinking_token_budget: int | None = Field(default=None, ge=-1, strict=True)
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)
    truncation_side: Literal["left", "right"] | None = None
    echo: bool = False
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: StopStrings = []
    stop_token_ids: list[TokenId] | None = Field(default=None, max_length=MAX_STOP_TOKENS)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    stream: bool = False
    stream_options: StreamOptions | None = None
    priority: int = Field(default=0, ge=-(2**31), lt=2**31)
    cache_salt: CacheSalt | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None

    @model_validator(mode="after")
    def _check_together(self) -> "GenerationRequest":
        if self.stream_options not in (None, StreamOptions()) and not self.stream:
            raise ValueError("stream_options is only allowed with stream: true")
        if self.response_format is not None and self.structured_outputs is not None:
            raise ValueError("response_format and structured_outputs exclude each other")
        if self.stream and self.prompt_logprobs is not None:
            raise ValueError("prompt_logprobs is only allowed with stream: false")
        if self.logprob_token_ids is not None and self.num_logprobs is None:
            raise ValueError("logprob_token_ids is only allowed with logprobs")
        if self.truncation_side is not None and self.truncate_prompt_tokens is None:
            raise ValueError("truncation_side is only allowed with truncate_prompt_tokens")
        return self

    @property
    def num_prompts(self) -> int:
        return 1

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def usage_in_every_chunk(self) -> bool:
        return self.include_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats
        )

    @property
    def continues_prompt(self) -> bool:
        """Whether the answer continues the prompt's last text, rather than starting a new one."""
        return True

    @property
    def truncation(self) -> Truncation | None:
        """How to truncate prompts; None: not at all."""
        length = self.truncate_prompt_tokens
        return None if length is None else Truncation(length, self.truncation_side or "left")

    @property
    def requested_max_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def only_scores_prompt(self) -> bool:
        """Whether the answer has no token. The engine computes one with the prompt."""
        return False

    @property
    def num_logprobs(self) -> int | None:
        """Number of most likely tokens to report per position; -1: all; None: no log-probabilities.

        Routes have different fields for it; logprobs_param is the field's name.
        """
        return None


Prompt = str | list[int]


def prompts(value: Any) -> list[Prompt]:
    """Converts a text, its tokens, or a list of either to a list. Raises ValueError."""
    if isinstance(value, str) or (isinstance(value, list) and value and _is_tokens(value)):
        return [value]
    if not isinstance(value, list) or not value:
        raise ValueError("must be a text, a list of token ids, or a list of either, and not empty")
    if not all(isinstance(entry, str) or _is_tokens(entry) for entry in value):
        raise ValueError("must be made of texts, or of lists of token ids")
    return value


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int and token >= 0 for token in value)


class CompletionRequest(GenerationRequest):
    """A completion request."""

    add_special_tokens: bool = True
    prompt: Annotated[
        list[Prompt],
        PlainValidator(
            prompts, json_schema_input_type=str | list[TokenId] | list[str | list[TokenId]]
        ),
    ]
    max_tokens: int | None = Field(default=None, ge=0)
    logprobs: int | None = Field(default=None, ge=-1, strict=True)

    @property
    def num_prompts(self) -> int:
        return len(self.prompt)

    @property
    def requested_max_tokens(self) -> int | None:
        return 16 if self.max_tokens is None else max(1, self.max_tokens)  # 16 is OpenAI's default

    @property
    def only_scores_prompt(self) -> bool:
        return self.max_tokens == 0

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs
