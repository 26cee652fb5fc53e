"""Builds the OpenAPI document of the engine's routes."""

import json
import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from penstock_engine.options.config import EngineConfig
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import CompletionRequest
from penstock_engine.server.routes.adapters import LoadRequest, UnloadRequest
from penstock_engine.server.routes.batch import BatchRequest
from penstock_engine.server.routes.embeddings import EmbeddingsRequest
from penstock_engine.server.routes.invocations import InvocationsRequest
from penstock_engine.server.routes.messages.request import CountTokensRequest, MessagesRequest
from penstock_engine.server.routes.responses.request import ResponsesRequest
from penstock_engine.server.routes.tokenization import DetokenizeRequest, TokenizeRequest
from penstock_engine.server.transport.json_text import Json

JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"

SCHEMA_REF = "#/components/schemas/{model}"
# Beginning of the names that pydantic gives to schemas whose class names are not unique.
PACKAGES = re.compile("penstock_engine__server__(requests|routes)__")


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """The description of one route."""

    method: Literal["get", "post"]
    path: str
    summary: str
    request: type[BaseModel] | None = None  # schema of the body
    answer: tuple[str, ...] | None = None  # fields of a JSON answer; None: no JSON
    text: str | None = None  # media type of a text answer; None: no text
    errors: tuple[int, ...] = ()  # statuses besides 200 and 401
    query: tuple[tuple[str, Json], ...] = ()  # name and schema of each query parameter
    is_open: bool = False  # whether the route needs no API key


GENERATION_ERRORS = (400, 404, 408, 413, 500, 503, 504)
READING_ERRORS = (400, 404, 408, 413)

CHAT_ANSWER = ("id", "object", "created", "model", "choices", "usage")
MESSAGE_ANSWER = ("id", "type", "role", "model", "content", "stop_reason", "usage")
RESPONSE_ANSWER = ("id", "object", "created_at", "model", "status", "output", "usage")

ROUTES = (
    RouteSpec("get", "/health", "Liveness", is_open=True, errors=(503,)),
    RouteSpec("get", "/ping", "Liveness, like /health", is_open=True, errors=(503,)),
    RouteSpec("post", "/ping", "Liveness, like /health", is_open=True, errors=(503,)),
    RouteSpec("get", "/ready", "Readiness", text=TEXT, is_open=True, errors=(503,)),
    RouteSpec("get", "/metrics", "Prometheus metrics", text=TEXT, is_open=True),
    RouteSpec("get", "/version", "The engine's version", answer=("version",), is_open=True),
    RouteSpec("get", "/v1/models", "Names of the model and its adapters", answer=("object", "data")),
    RouteSpec("get", "/load", "Number of requests in flight", answer=("server_load",)),
    RouteSpec(
        "post", "/v1/chat/completions", "Answers a chat", ChatCompletionRequest, CHAT_ANSWER,
        EVENTS, GENERATION_ERRORS,
    ),
    RouteSpec(
        "post", "/v1/chat/completions/batch", "Answers several chats at once", BatchRequest, CHAT_ANSWER,
        errors=GENERATION_ERRORS,
    ),
    RouteSpec(
        "post", "/v1/completions", "Continues a text", CompletionRequest, CHAT_ANSWER,
        EVENTS, GENERATION_ERRORS,
    ),
    RouteSpec(
        "post", "/v1/responses", "Creates a response of OpenAI's Responses API",
        ResponsesRequest, RESPONSE_ANSWER, EVENTS, GENERATION_ERRORS,
    ),
    RouteSpec(
        "post", "/v1/embeddings", "Embeddings of texts or of a chat", EmbeddingsRequest,
        ("object", "data", "model", "usage"), errors=GENERATION_ERRORS,
    ),
    RouteSpec(
        "post", "/pooling", "Embeddings, in the format of vLLM's pooling API", EmbeddingsRequest,
        ("object", "data", "model", "usage"), errors=GENERATION_ERRORS,
    ),
    RouteSpec(
        "post", "/invocations", "A chat, completion or embeddings, by the body's fields", InvocationsRequest,
        ("object", "model", "usage"), EVENTS, GENERATION_ERRORS,
    ),
    RouteSpec(
        "post", "/v1/messages", "Answers in Anthropic's API", MessagesRequest, MESSAGE_ANSWER,
        EVENTS, GENERATION_ERRORS,
    ),
    RouteSpec(
        "post", "/v1/messages/count_tokens", "Counts a prompt's tokens", CountTokensRequest,
        ("input_tokens",), errors=READING_ERRORS,
    ),
    RouteSpec(
        "post", "/tokenize", "Tokenizes a text or a chat", TokenizeRequest,
        ("count", "max_model_len", "tokens"), errors=READING_ERRORS,
    ),
    RouteSpec(
        "post", "/detokenize", "Decodes tokens to text", DetokenizeRequest, ("prompt",),
        errors=READING_ERRORS,
    ),
    RouteSpec("post", "/reset_prefix_cache", "Empties the prefix cache"),
)  # fmt: skip

SLEEP_ROUTES = (
    RouteSpec(
        "post", "/sleep", "Frees the engine's memory",
        query=(("level", {"enum": ["1", "2"]}), ("mode", {"enum": ["abort", "wait"]})),
        errors=(400,),
    ),
    RouteSpec(
        "post", "/wake_up", "Wakes the engine up",
        query=(("tags", {"enum": ["weights", "kv_cache"]}),), errors=(400, 503),
    ),
    RouteSpec("get", "/is_sleeping", "Whether the engine sleeps", answer=("is_sleeping",)),
)  # fmt: skip


RESPONSE_ROUTES = (
    RouteSpec(
        "get", "/v1/responses/{response_id}", "A stored response", answer=RESPONSE_ANSWER,
        errors=(400, 404),
    ),
    RouteSpec(
        "post", "/v1/responses/{response_id}/cancel", "Cancels a background response",
        answer=RESPONSE_ANSWER, errors=(400, 404),
    ),
)  # fmt: skip

TOKENIZER_ROUTES = (
    RouteSpec("get", "/tokenizer_info", "The tokenizer's settings", answer=("tokenizer_class",)),
)

ADAPTER_ROUTES = (
    RouteSpec(
        "post", "/v1/load_lora_adapter", "Loads an adapter", LoadRequest, text=TEXT,
        errors=(*READING_ERRORS, 503),
    ),
    RouteSpec(
        "post", "/v1/unload_lora_adapter", "Unloads an adapter", UnloadRequest, text=TEXT,
        errors=READING_ERRORS,
    ),
    RouteSpec("get", "/v1/adapters", "Adapters and their tiers", answer=("object", "slots", "data")),
)  # fmt: skip


def openapi_document(options: ServeOptions, config: EngineConfig) -> Json:
    """Returns the OpenAPI 3.1 document of the routes that an engine with these flags has."""
    routes = (
        *ROUTES,
        *(RESPONSE_ROUTES if options.enable_responses_store else ()),
        *(TOKENIZER_ROUTES if options.enable_tokenizer_info_endpoint else ()),
        *(SLEEP_ROUTES if options.enable_sleep_mode else ()),
        *(ADAPTER_ROUTES if config.enable_lora else ()),
    )
    kinds = {route.request for route in routes if route.request is not None}
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in kinds], ref_template=SCHEMA_REF
    )
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
    # pydantic joins module names with "__", which would be part of the component names.
    renamed: Json = json.loads(PACKAGES.sub("", json.dumps(document)).replace("__", "."))
    return renamed


def _operation(route: RouteSpec, has_keys: bool) -> Json:
    operation: Json = {"summary": route.summary, "responses": {"200": _answer(route)}}
    is_anthropic = route.path.startswith("/v1/messages")
    error = _ref("AnthropicError" if is_anthropic else "Error")
    statuses = list(route.errors)
    if has_keys and not route.is_open:
        operation["security"] = [{"key": []}]
        operation["responses"]["401"] = _body(_ref("Error"))
    for status in statuses:
        is_probe = route.is_open  # a probe's status has no body
        operation["responses"][str(status)] = (
            {"description": "not ready"} if is_probe else _body(error)
        )
    if route.request is not None:
        operation["requestBody"] = {
            "required": True, "content": {JSON: {"schema": _ref(route.request.__name__)}},
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


def _answer(route: RouteSpec) -> Json:
    content: Json = {}
    if route.answer is not None:
        content[JSON] = {"schema": {"type": "object", "required": list(route.answer)}}
    if route.text is not None:
        content[route.text] = {} if route.text == EVENTS else {"schema": {"type": "string"}}
    return {"description": "success"} | ({"content": content} if content else {})


def _body(schema: Json) -> Json:
    return {"description": "error", "content": {JSON: {"schema": schema}}}


def _ref(name: str) -> Json:
    return {"$ref": SCHEMA_REF.format(model=name)}


def _fields(**properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


_SENTENCE = {"type": "string", "minLength": 1}
ERROR = _fields(
    error=_fields(
        message=_SENTENCE,
        type=_SENTENCE,
        param={"type": ["string", "null"]},
        code={"type": ["integer", "string"]},
    )
)
ANTHROPIC_ERROR = _fields(type={"const": "error"}, error=_fields(type=_SENTENCE, message=_SENTENCE))
