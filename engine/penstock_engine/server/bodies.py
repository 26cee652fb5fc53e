"""Bodies of requests: JSON read within limits, what is known and what changes nothing told apart."""

import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.chat_template import UNTRUSTED_TEMPLATE
from penstock_engine.server.errors import RequestError, from_validation
from penstock_engine.server.schemas import CompletionRequest, GenerationRequest

logger = logging.getLogger(__name__)

# Parameters of vLLM and OpenAI that this engine does not have, and the values (beside null) with
# which they change nothing. Any other value is refused: ignoring it would give another answer than
# was asked for.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "documents": ([],),
    "enable_response_messages": (False,),
    "ec_transfer_params": ({},),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "kv_transfer_params": ({},),
    "length_penalty": (1, 1.0),
    "max_tool_calls": (),
    "media_io_kwargs": ({},),
    "mm_payload": ({},),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "prediction": (),
    "previous_input_messages": ([],),
    "prompt_embeds": (),
    "repetition_detection": (),
    "return_mm_kwargs": (False,),
    "return_prompt_text": (False,),
    "return_token_offsets": (False,),
    "routed_experts_prompt_start": (),
    "stream_interval": (1,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "vllm_xargs": ({},),
    "watermarking": (False, {}),
    "web_search_options": (),
}

# Why one of them is refused, where there is more to say than that the engine does not have it.
REASONS = {
    "chat_template": UNTRUSTED_TEMPLATE,
    "use_beam_search": "use_beam_search: this engine has no beam search: leave it out",
}

# Parameters that have no bearing on the answer of an engine without users and accounts.
WITHOUT_EFFECT = frozenset(
    {
        "metadata", "prompt_cache_key",
        "safety_identifier", "service_tier", "session_id", "spaces_between_special_tokens",
        "store", "user",
    }
)  # fmt: skip

# Parameters of text generation. A route that does not take one refuses it.
OF_SOME_ROUTE: dict[str, FieldInfo] = {
    **CompletionRequest.model_fields,
    **ChatCompletionRequest.model_fields,
}

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
    return checked(schema, {**defaults, **known(body, schema)})


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


def known(body: Mapping[str, Any], schema: type[BaseModel]) -> dict[str, Any]:
    """The parameters that the engine has. Raises RequestError for a known one that it lacks."""
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in body.items():
        if name in schema.model_fields:
            if value is not None:  # null asks for the default
                known[name] = value
        elif not _is_known(name, value):
            unknown.append(name[:64])
    if unknown:
        logger.debug("ignored, since nobody knows them: %s", unknown[:16])
    return known


def changes_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Whether a parameter is null, or has one of the values that change nothing."""
    return value is None or any(_is_same(value, each) for each in neutral)


def refuse_without_effect(
    body: Mapping[str, Any],
    taken: Collection[str],
    of_other_routes: Mapping[str, FieldInfo] = OF_SOME_ROUTE,
) -> None:
    """Raises RequestError for a known parameter that is not among those that a route takes."""
    for name, value in body.items():
        if name not in taken:
            _is_known(name, value, of_other_routes)


def _is_known(
    name: str, value: Any, of_other_routes: Mapping[str, FieldInfo] = OF_SOME_ROUTE
) -> bool:
    """Whether the engine knows a parameter that the route does not take. Raises RequestError where the
    value would change the answer."""
    if name in NEUTRAL:
        if not changes_nothing(value, NEUTRAL[name]):
            reason = REASONS.get(name, f"{name} is not supported by this engine: leave it out")
            raise RequestError(400, reason, param=name)
        return True
    if name in of_other_routes:
        default = of_other_routes[name].get_default(call_default_factory=True)
        if value is not None and value != default:
            reason = f"{name} is not a parameter of this route and has no effect: leave it out"
            raise RequestError(400, reason, param=name)
        return True
    return name in WITHOUT_EFFECT


def _is_same(value: Any, neutral: Any) -> bool:
    return type(value) is type(neutral) and bool(value == neutral)
