"""Requests of the OpenAI-compatible routes, checked and capped before any work is done."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from penstock_engine.core.sampling import SamplingParams

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_MESSAGES = 2048
MAX_BATCH = 64

# Parameters of vLLM and OpenAI that change an answer and that this engine does not have: asking
# for one is refused, because ignoring it would give another answer than was asked for.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "chat_template": (),
    "documents": ([],),
    "prompt_embeds": (),
    "truncate_prompt_tokens": (),
    "min_tokens_penalty": (),
}


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False
    continuous_usage_stats: bool = False


def _as_list(value: Any) -> Any:
    return [] if value is None else [value] if isinstance(value, str) else value


StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
StopStrings = Annotated[
    list[StopString], BeforeValidator(_as_list), Field(max_length=MAX_STOP_STRINGS)
]


class GenerationRequest(BaseModel):
    """What completions and chat completions share. Unknown fields are ignored, as vLLM does."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, strict=False)

    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int = Field(default=0, ge=0)
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=1_000_000)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: StopStrings = []
    stop_token_ids: list[Annotated[int, Field(ge=0)]] | None = Field(default=None, max_length=256)
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    stream: bool = False
    stream_options: StreamOptions | None = None
    cache_salt: str | None = Field(default=None, max_length=256)

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_would_be_ignored(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for name, neutral in NEUTRAL.items():
                value = data.get(name)
                if value is not None and value not in neutral:
                    raise ValueError(f"{name} is not supported by this engine; leave it out")
        return data

    @model_validator(mode="after")
    def _check_together(self) -> "GenerationRequest":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed with stream: true")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def asked_max_tokens(self) -> int | None:
        return self.max_tokens

    def sampling(self, max_tokens: int) -> SamplingParams:
        """With OpenAI's defaults for what was not asked."""
        top_k = self.top_k or 0
        seed = None if self.seed is None else self.seed % 2**63
        return SamplingParams(
            max_tokens=max_tokens,
            min_tokens=min(self.min_tokens, max_tokens),
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, top_k),
            min_p=self.min_p or 0.0,
            stop_token_ids=frozenset(self.stop_token_ids or ()),
            ignore_eos=self.ignore_eos,
            seed=seed,
        )


class CompletionRequest(GenerationRequest):
    prompt: (
        Annotated[str, Field(min_length=1)]
        | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
        | Annotated[
            list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MAX_BATCH)
        ]
        | Annotated[
            list[Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]],
            Field(min_length=1, max_length=MAX_BATCH),
        ]
    )

    def prompts(self) -> list[str | list[int]]:
        """One entry for each choice of the answer."""
        if isinstance(self.prompt, list) and not isinstance(self.prompt[0], int):
            return list(self.prompt)
        return [self.prompt]

    def asked_max_tokens(self) -> int | None:
        return self.max_tokens or 16  # OpenAI's default for this route


class TextPart(BaseModel):
    type: Literal["text"]
    text: str


class Message(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Annotated[str, Field(min_length=1, max_length=32)]
    content: str | list[TextPart] | None = None
    name: str | None = None

    def for_template(self) -> dict[str, Any]:
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        return {"role": self.role, "content": text} | ({"name": self.name} if self.name else {})


class ChatCompletionRequest(GenerationRequest):
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: int | None = Field(default=None, ge=1)

    def asked_max_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens
