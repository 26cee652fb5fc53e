"""The routes in OpenAPI's words."""

import json
import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from penstock_engine.config import EngineConfig
from penstock_engine.serve_options import ServeOptions
from penstock_engine.server.adapter_routes import LoadRequest, UnloadRequest
from penstock_engine.server.answers import Json
from penstock_engine.server.batch import BatchRequest
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.embeddings import EmbeddingsRequest
from penstock_engine.server.invocations import InvocationsRequest
from penstock_engine.server.messages.request import CountTokensRequest, MessagesRequest
from penstock_engine.server.responses.request import ResponsesRequest
from penstock_engine.server.schemas import CompletionRequest
from penstock_engine.server.tokenization import DetokenizeRequest, TokenizeRequest

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"

# Where the schemas of all requests live, and how pydantic names those whose names are not unique.
PLACE = "#/components/schemas/{model}"
PACKAGE = "penstock_engine__server__"


@dataclass(frozen=True, slots=True)
class Described:
    """One route. answer: the fields that a JSON answer has; None: there is no JSON. text: what a
    text answer is of; None: there is no text. errors: statuses beside 200 and 401."""

    method: Literal["get", "post"]
    path: str
    summary: str
    request: type[BaseModel] | None = None
    answer: tuple[str, ...] | None = None
    text: str | None = None
    errors: tuple[int, ...] = ()
    query: tuple[tuple[str, Json], ...] = ()
    is_open: bool = False


GENERATION_ERRORS = (400, 404, 408, 413, 500, 503, 504)
READING_ERRORS = (400, 404, 408, 413)

CHAT_ANSWER = ("id", "object", "created", "model", "choices", "usage")
MESSAGE_ANSWER = ("id", "type", "role", "model", "content", "stop_reason", "usage")
RESPONSE_ANSWER = ("id", "object", "created_at", "model", "status", "output", "usage")

ROUTES = (
    Described("get", "/health", "Whether the process should live", is_open=True, errors=(503,)),
    Described("get", "/ping", "As /health", is_open=True, errors=(503,)),
    Described("post", "/ping", "As /health", is_open=True, errors=(503,)),
    Described("get", "/ready", "Whether requests are taken", text=TEXT, is_open=True, errors=(503,)),
    Described("get", "/metrics", "Prometheus metrics", text=TEXT, is_open=True),
    Described("get", "/version", "The engine's version", answer=("version",), is_open=True),
    Described("get", "/v1/models", "What can be asked for", answer=("object", "data")),
    Described("get", "/load", "Requests in flight", answer=("server_load",)),
    Described(
        "post", "/v1/chat/completions", "An answer in a chat", ChatCompletionRequest, CHAT_ANSWER,
        EVENTS, GENERATION_ERRORS,
    ),
    Described(
        "post", "/v1/chat/completions/batch", "Answers several chats at once", BatchRequest, CHAT_ANSWER,
        errors=GENERATION_ERRORS,
    ),
    Described(
        "post", "/v1/completions", "Continues a text", CompletionRequest, CHAT_ANSWER,
        EVENTS, GENERATION_ERRORS,
    ),
    Described(
        "post", "/v1/responses", "An answer by the Responses API",
        ResponsesRequest, RESPONSE_ANSWER, EVENTS, GENERATION_ERRORS,
    ),
    Described(
        "post", "/v1/embeddings", "Embeddings of texts or of a chat", EmbeddingsRequest,
        ("object", "data", "model", "usage"), errors=GENERATION_ERRORS,
    ),
    Described(
        "post", "/pooling", "Embeddings, in the format of vLLM's pooling API", EmbeddingsRequest,
        ("object", "data", "model", "usage"), errors=GENERATION_ERRORS,
    ),
    Described(
        "post", "/invocations", "A chat, completion or embeddings, by the body's fields", InvocationsRequest,
        ("object", "model", "usage"), EVENTS, GENERATION_ERRORS,
    ),
    Described(
        "post", "/v1/messages", "An answer by Anthropic's API", MessagesRequest, MESSAGE_ANSWER,
        EVENTS, GENERATION_ERRORS,
    ),
    Described(
        "post", "/v1/messages/count_tokens", "Tokens of a prompt", CountTokensRequest,
        ("input_tokens",), errors=READING_ERRORS,
    ),
    Described(
        "post", "/tokenize", "A text or a chat as tokens", TokenizeRequest,
        ("count", "max_model_len", "tokens"), errors=READING_ERRORS,
    ),
    Described(
        "post", "/detokenize", "Tokens as text", DetokenizeRequest, ("prompt",),
        errors=READING_ERRORS,
    ),
    Described("post", "/reset_prefix_cache", "What comes is computed anew"),
)  # fmt: skip

SLEEP_ROUTES = (
    Described(
        "post", "/sleep", "Gives the memory back",
        query=(("level", {"enum": ["1", "2"]}), ("mode", {"enum": ["abort", "wait"]})),
        errors=(400,),
    ),
    Described(
        "post", "/wake_up", "Wakes the engine up",
        query=(("tags", {"enum": ["weights", "kv_cache"]}),), errors=(400, 503),
    ),
    Described("get", "/is_sleeping", "Whether the engine sleeps", answer=("is_sleeping",)),
)  # fmt: skip


RESPONSE_ROUTES = (
    Described(
        "get", "/v1/responses/{response_id}", "A stored response", answer=RESPONSE_ANSWER,
        errors=(400, 404),
    ),
    Described(
        "post", "/v1/responses/{response_id}/cancel", "Cancels a background response",
        answer=RESPONSE_ANSWER, errors=(400, 404),
    ),
)  # fmt: skip

TOKENIZER_ROUTES = (
    Described("get", "/tokenizer_info", "The tokenizer's settings", answer=("tokenizer_class",)),
)

ADAPTER_ROUTES = (
    Described(
        "post", "/v1/load_lora_adapter", "Makes an adapter known", LoadRequest, text=TEXT,
        errors=(*READING_ERRORS, 503),
    ),
    Described(
        "post", "/v1/unload_lora_adapter", "Forgets an adapter", UnloadRequest, text=TEXT,
        errors=READING_ERRORS,
    ),
    Described("get", "/v1/adapters", "Adapters, and where they are", answer=("object", "data")),
)  # fmt: skip


def description(options: ServeOptions, config: EngineConfig) -> Json:
    """An OpenAPI 3.1 document of the routes that an engine with these flags has."""
    routes = (
        *ROUTES,
        *(RESPONSE_ROUTES if options.enable_responses_store else ()),
        *(TOKENIZER_ROUTES if options.enable_tokenizer_info_endpoint else ()),
        *(SLEEP_ROUTES if options.enable_sleep_mode else ()),
        *(ADAPTER_ROUTES if config.enable_lora else ()),
    )
    kinds = {route.request for route in routes if route.request is not None}
    _, schemas = models_json_schema([(kind, "validation") for kind in kinds], ref_template=PLACE)
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method] = _operation(route, bool(options.api_keys))
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Penstock engine", "version": version("penstock")},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"] | {"Error": ERROR, "AnthropicError": ANTHROPIC_ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
    # Component names cannot have what pydantic puts between the parts of a module's name.
    plain: Json = json.loads(json.dumps(document).replace(PACKAGE, "").replace("__", "."))
    return plain


def _operation(route: Described, has_keys: bool) -> Json:
    operation: Json = {"summary": route.summary, "responses": {"200": _answer(route)}}
    is_anthropic = route.path.startswith("/v1/messages")
    error = _of("AnthropicError" if is_anthropic else "Error")
    statuses = list(route.errors)
    if has_keys and not route.is_open:
        operation["security"] = [{"key": []}]
        operation["responses"]["401"] = _body(_of("Error"))
    for status in statuses:
        is_silent = route.is_open  # a probe says it all with its status
        operation["responses"][str(status)] = (
            {"description": "not now"} if is_silent else _body(error)
        )
    if route.request is not None:
        operation["requestBody"] = {
            "required": True, "content": {JSON: {"schema": _of(route.request.__name__)}},
        }  # fmt: skip
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in route.query
    ]
    if parameters:
        operation["parameters"] = parameters
    return operation


def _answer(route: Described) -> Json:
    content: Json = {}
    if route.answer is not None:
        content[JSON] = {"schema": {"type": "object", "required": list(route.answer)}}
    if route.text is not None:
        content[route.text] = {} if route.text == EVENTS else {"schema": {"type": "string"}}
    return {"description": "done"} | ({"content": content} if content else {})


def _body(schema: Json) -> Json:
    return {"description": "refused", "content": {JSON: {"schema": schema}}}


def _of(name: str) -> Json:
    return {"$ref": PLACE.format(model=name)}


def _fields(**properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


_SENTENCE = {"type": "string", "minLength": 1}
ERROR = _fields(
    error=_fields(
        message=_SENTENCE,
        type=_SENTENCE,
        param={"type": ["string", "null"]},
        code={"type": "integer"},
    )
)
ANTHROPIC_ERROR = _fields(type={"const": "error"}, error=_fields(type=_SENTENCE, message=_SENTENCE))
