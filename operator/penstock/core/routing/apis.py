"""The API routes that engines answer: one row for each, with all that the gateway knows of it.

Parsing, admission, usage, errors, mirrored copies, metrics and the application's routes read these rows. An
engine may lack some of the routes. It answers with a 404, which is passed on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.core.routing.prompt_kinds import (
    BLOCKS,
    CONTENT,
    CONVERSATIONS,
    DOCUMENTS,
    ITEMS,
    MESSAGES,
    TEXT,
    TOOLS,
    Prompt,
    PromptKind,
)

# Forms of an API's errors. Responses: bodies are OpenAI's, but a stream has an event `error` and no DONE.
ErrorForm = Literal["OpenAI", "Responses", "Anthropic"]
# APIs of providers of external models.
ProviderApi = Literal["OpenAI", "Anthropic"]
# Kinds of work that routes do with a prompt. Routes of different APIs may do the same.
Task = Literal[
    "Chat",
    "Completion",
    "Embedding",
    "Pooling",
    "Classification",
    "Score",
    "Rerank",
    "Tokenization",
]


@dataclass(frozen=True, slots=True)
class UsageFields:
    """Names of the token counts in the `usage` of a response.

    output: None if the API generates no tokens. cached: part of the prompt's that came from a cache; None if
    the API does not report it. is_cached_apart: whether the prompt's count leaves the cached part out.
    """

    prompt: str
    output: str | None
    cached: str | None
    is_cached_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # hashable: one object for each API
class Api:
    """An API route that engines answer."""

    path: str
    task: Task
    # Forms of the prompt, each as the fields that are its parts, with their kinds. A body has a form if it
    # has the first of these fields; of several forms the first one counts. The first field also identifies
    # the conversation. Empty if the model computes nothing, as when an engine only counts tokens.
    prompts: Sequence[Mapping[str, PromptKind]]
    usage: UsageFields | None  # None: responses report no token counts
    overhead_events: int = 1  # events of a stream that carry no token, such as DONE
    # A line that only the last event of a stream has, as a field and a regular expression for its value. A
    # stream that ends without it was cut off.
    last_event: tuple[str, str] = ("data", r"\[DONE\]")
    errors: ErrorForm = "OpenAI"  # form of the gateway's own errors
    provider: ProviderApi | None = None  # which external models have the route; None: none of them
    # Fields that bound the generated tokens of a response. The first one is the usual one.
    output_bounds: Sequence[str] = ()
    # Tokens that engines generate at most without such a field; None: as many as the model can
    default_output_tokens: int | None = None
    # Fields with the number of alternatives of each token whose probabilities are in the response
    logprobs: Sequence[str] = ()
    # Whether engines may store responses. A request continues one by `previous_response_id`.
    stores: bool = False
    # APIs that requests with certain fields belong to instead: by the name of a field that is neither null
    # nor false. The first such field counts.
    variants: Mapping[str, "Api"] = field(default_factory=dict)

    @property
    def generates(self) -> bool:
        """Whether its responses have generated tokens."""
        return self.usage is not None and self.usage.output is not None

    def prompt_of(self, fields: Mapping[str, Any]) -> Prompt:
        """Return the prompt of a parsed body; one without parts if it has none."""
        for kinds in self.prompts:
            if fields.get(next(iter(kinds))) is not None:
                return Prompt([(kind, fields.get(name)) for name, kind in kinds.items()])
        return Prompt(())

    def variant_of(self, fields: Mapping[str, Any]) -> "Api":
        """Return the variant that a parsed body belongs to, else this API."""
        for name, api in self.variants.items():
            if fields.get(name) not in (None, False):
                return api
        return self


# Both routes read both prompts: it is the engine that refuses the one of the other route.
OPENAI_PROMPTS: Sequence[Mapping[str, PromptKind]] = (
    {"messages": MESSAGES, "tools": TOOLS},
    {"prompt": TEXT},
)
OPENAI_USAGE = UsageFields("prompt_tokens", "completion_tokens", "cached_tokens")
CHAT_BOUNDS = ("max_completion_tokens", "max_tokens")
CHAT_LOGPROBS = ("top_logprobs", "prompt_logprobs")

CHAT = Api(
    path="/v1/chat/completions",
    task="Chat",
    prompts=OPENAI_PROMPTS,
    usage=OPENAI_USAGE,
    overhead_events=2,  # the first event has only the role
    provider="OpenAI",
    output_bounds=CHAT_BOUNDS,
    logprobs=CHAT_LOGPROBS,
)
COMPLETIONS = Api(
    path="/v1/completions",
    task="Completion",
    prompts=OPENAI_PROMPTS[::-1],  # engines ignore the messages beside a prompt
    usage=OPENAI_USAGE,
    provider="OpenAI",
    output_bounds=("max_tokens",),
    default_output_tokens=16,  # of OpenAI's API
    logprobs=("logprobs", "prompt_logprobs"),
)
BATCH = Api(
    path="/v1/chat/completions/batch",
    task="Chat",
    prompts=({"messages": CONVERSATIONS},),
    usage=OPENAI_USAGE,
    output_bounds=CHAT_BOUNDS,
    logprobs=CHAT_LOGPROBS,
)

RESPONSES_PROMPTS: Sequence[Mapping[str, PromptKind]] = (
    {"input": ITEMS, "instructions": TEXT, "tools": TOOLS},
)
# A request for a background response is answered before the response is computed, and without usage.
BACKGROUND = Api(
    path="/v1/responses",
    task="Chat",
    prompts=RESPONSES_PROMPTS,
    usage=None,
    errors="Responses",
    stores=True,
    output_bounds=("max_output_tokens",),
    logprobs=("top_logprobs",),
)
RESPONSES = Api(
    path="/v1/responses",
    task="Chat",
    prompts=RESPONSES_PROMPTS,
    usage=UsageFields("input_tokens", "output_tokens", "cached_tokens"),
    # created, in_progress, the beginning and the end of one item with one part, and the last event
    overhead_events=8,
    last_event=("event", r"response\.(?:completed|failed|incomplete)|error"),
    errors="Responses",
    stores=True,
    output_bounds=("max_output_tokens",),
    logprobs=("top_logprobs",),
    variants={"background": BACKGROUND},
)
MESSAGES_API = Api(
    path="/v1/messages",
    task="Chat",
    prompts=({"messages": BLOCKS, "system": CONTENT, "tools": TOOLS},),
    usage=UsageFields(
        "input_tokens", "output_tokens", "cache_read_input_tokens", is_cached_apart=True
    ),
    overhead_events=5,  # the beginning and the end of the message and of one block, and the delta of usage
    last_event=("event", "message_stop|error"),
    errors="Anthropic",
    provider="Anthropic",
    output_bounds=("max_tokens",),
)

# `total_tokens` is the only count that all versions of vLLM report for these routes.
PROMPT_USAGE = UsageFields("total_tokens", output=None, cached=None)
EMBEDDED: Sequence[Mapping[str, PromptKind]] = ({"input": TEXT}, {"messages": MESSAGES})
EMBEDDINGS = Api(
    path="/v1/embeddings", task="Embedding", prompts=EMBEDDED, usage=PROMPT_USAGE, provider="OpenAI"
)
COHERE_EMBED = Api(
    path="/v2/embed",
    task="Embedding",
    prompts=({"texts": TEXT}, {"inputs": MESSAGES}),
    usage=UsageFields("input_tokens", output=None, cached=None),
)
POOLING = Api(path="/pooling", task="Pooling", prompts=EMBEDDED, usage=PROMPT_USAGE)
CLASSIFY = Api(path="/classify", task="Classification", prompts=EMBEDDED, usage=PROMPT_USAGE)
RERANKED: Sequence[Mapping[str, PromptKind]] = ({"query": DOCUMENTS, "documents": DOCUMENTS},)
SCORED: Sequence[Mapping[str, PromptKind]] = (
    {"text_1": DOCUMENTS, "text_2": DOCUMENTS},
    {"data_1": DOCUMENTS, "data_2": DOCUMENTS},
    {"queries": DOCUMENTS, "documents": DOCUMENTS, "items": DOCUMENTS},
)

INVOCATIONS = Api(
    path="/invocations",
    task="Chat",
    prompts=(*OPENAI_PROMPTS, {"input": TEXT}),
    usage=OPENAI_USAGE,
    variants={"messages": CHAT, "prompt": COMPLETIONS, "input": EMBEDDINGS},
)

APIS = (
    CHAT,
    COMPLETIONS,
    BATCH,
    RESPONSES,
    MESSAGES_API,
    Api(
        path="/v1/messages/count_tokens", task="Tokenization", prompts=(), usage=None,
        errors="Anthropic", provider="Anthropic",
    ),
    EMBEDDINGS,
    COHERE_EMBED,
    POOLING,
    CLASSIFY,
    *(
        Api(path=path, task="Score", prompts=SCORED, usage=PROMPT_USAGE)
        for path in ("/score", "/v1/score")
    ),
    *(
        Api(path=path, task="Rerank", prompts=RERANKED, usage=PROMPT_USAGE)
        for path in ("/rerank", "/v1/rerank", "/v2/rerank")
    ),
    *(Api(path=path, task="Tokenization", prompts=(), usage=None) for path in ("/tokenize", "/detokenize")),
    INVOCATIONS,
)  # fmt: skip

# Routes about one stored response, with their methods. They go to the engine that has stored it.
STORED_RESPONSE_ROUTES: Mapping[str, Sequence[str]] = {
    "/v1/responses/{response_id}": ("GET", "DELETE"),
    "/v1/responses/{response_id}/cancel": ("POST",),
    "/v1/responses/{response_id}/input_items": ("GET",),
}


@dataclass(frozen=True, slots=True)
class BatchRoute:
    """A route that the batch server answers. api_path: the path by which tenants are allowed to use it."""

    api_path: str
    methods: Sequence[str]


# Routes of files and batches by their paths, in which `{id}` is that of the file or the batch.
BATCH_ROUTES: Mapping[str, BatchRoute] = {
    f"{api_path}{rest}": BatchRoute(api_path, methods)
    for api_path, rest, methods in (
        ("/v1/files", "", ("GET", "POST")),
        ("/v1/files", "/{id}", ("GET", "DELETE")),
        ("/v1/files", "/{id}/content", ("GET",)),
        ("/v1/batches", "", ("GET", "POST")),
        ("/v1/batches", "/{id}", ("GET",)),
        ("/v1/batches", "/{id}/cancel", ("POST",)),
    )
}

# Paths that tenants are allowed to use.
API_PATHS = tuple(
    sorted({*(api.path for api in APIS), *(each.api_path for each in BATCH_ROUTES.values())})
)


def error_form(path: str) -> ErrorForm:
    """The form of errors of the API that a path is of, or is below."""
    return next((api.errors for api in APIS if f"{path}/".startswith(f"{api.path}/")), "OpenAI")
