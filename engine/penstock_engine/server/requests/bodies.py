"""Parses and validates request bodies; rejects parameters that the engine would have to ignore."""

import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.chat_template import UNTRUSTED_TEMPLATE
from penstock_engine.server.requests.completion_request import CompletionRequest, GenerationRequest
from penstock_engine.server.transport.errors import RequestError, from_validation

logger = logging.getLogger(__name__)

# Parameters of other servers (llama.cpp, Ollama, SGLang, text-generation-webui, older vLLM) that constrain
# the text of the answer, with the values (besides null) that have no effect.
CONSTRAINTS: dict[str, tuple[Any, ...]] = {
    "ebnf": (),
    "format": ("",),
    "grammar": ("",),
    "grammar_string": ("",),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_json_object": (False,),
    "guided_regex": (),
    "guided_whitespace_pattern": (),
    "json_schema": (),
    "regex": (),
    "structural_tag": (),
}

# Parameters of other servers and APIs that this engine does not have, with the values (besides null) that
# have no effect. Any other value is rejected: ignoring it would give an answer that was not requested.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    **CONSTRAINTS,
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "dimensions": (),
    "documents": ([],),
    "enable_response_messages": (False,),
    "ec_transfer_params": ({},),
    "extra_body": ({},),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "kv_transfer_params": ({},),
    "length_penalty": (1, 1.0),
    "max_tool_calls": (),
    "mcp_servers": ([],),
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
    "stop_regex": ([], ""),
    "stream_interval": (1,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "vllm_xargs": ({},),
    "watermarking": (False, {}),
    "web_search_options": (),
}

# Error messages of some of them. The others get a general one.
REASONS = {
    **{
        name: f"{name} is not supported: use structured_outputs or response_format"
        for name in CONSTRAINTS
    },
    "chat_template": UNTRUSTED_TEMPLATE,
    "dimensions": "dimensions is not supported: the model was not trained for shorter vectors",
    "extra_body": "extra_body is an argument of client libraries: put its fields into the body itself",
    "use_beam_search": "use_beam_search: this engine has no beam search: leave it out",
}

# Parameters that are accepted and ignored: they do not change the answer of an engine without accounts.
IGNORED = frozenset(
    {
        "guided_decoding_backend", "metadata", "prompt_cache_key",
        "safety_identifier", "service_tier", "session_id", "spaces_between_special_tokens",
        "store", "user",
    }
)  # fmt: skip

# All parameters of text generation. A route rejects those that it does not have.
GENERATION_PARAMETERS: dict[str, FieldInfo] = {
    **CompletionRequest.model_fields,
    **ChatCompletionRequest.model_fields,
}

Request = TypeVar("Request", bound=GenerationRequest)
Model = TypeVar("Model", bound=BaseModel)

NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


def parse(schema: type[Request], raw: bytes, defaults: Mapping[str, Any] = NO_DEFAULTS) -> Request:
    """Parses and validates a body. Raises RequestError that names the invalid field."""
    return build_request(schema, read_object(raw), defaults)


def build_request(
    schema: type[Request], body: Mapping[str, Any], defaults: Mapping[str, Any] = NO_DEFAULTS
) -> Request:
    """Validates a parsed body. defaults: validated values of parameters that the body leaves out.

    Raises RequestError.
    """
    return validate(schema, {**defaults, **known_parameters(body, schema)})


def read_object(raw: bytes) -> dict[str, Any]:
    """Parses a JSON object. Raises RequestError if the body is anything else."""
    try:
        # from_json rejects NaN, deep nesting, huge numbers and lone surrogates.
        body = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(400, "the body is not valid JSON") from error
    if not isinstance(body, dict):
        raise RequestError(400, "the body must be a JSON object")
    return body


def validate(schema: type[Model], body: Mapping[str, Any]) -> Model:
    """Validates a body against a schema. Raises RequestError that names the invalid field."""
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise from_validation(error) from error


def known_parameters(body: Mapping[str, Any], schema: type[BaseModel]) -> dict[str, Any]:
    """Returns the parameters that the schema has, without nulls.

    Raises RequestError for a parameter of OpenAI or vLLM that this route lacks, unless its value has
    no effect. Unknown parameters are ignored.
    """
    parameters: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in body.items():
        if name in schema.model_fields:
            if value is not None:  # null means the default
                parameters[name] = value
        elif not _check_lacking_parameter(name, value):
            unknown.append(name[:64])
    if unknown:
        logger.debug("unknown parameters are ignored: %s", unknown[:16])
    return parameters


def has_no_effect(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Whether a parameter is null, or has one of the values that have no effect."""
    return value is None or any(_is_same(value, each) for each in neutral)


def reject_without_effect(
    body: Mapping[str, Any],
    accepted: Collection[str],
    of_other_routes: Mapping[str, FieldInfo] = GENERATION_PARAMETERS,
) -> None:
    """Raises RequestError for a parameter of another route that has no effect on this one.

    accepted: names of the parameters that this route has.
    """
    for name, value in body.items():
        if name not in accepted:
            _check_lacking_parameter(name, value, of_other_routes)


def _check_lacking_parameter(
    name: str, value: Any, of_other_routes: Mapping[str, FieldInfo] = GENERATION_PARAMETERS
) -> bool:
    """Check a parameter that the route lacks, and return whether OpenAI or vLLM has it.

    Raises RequestError if its value would change the answer.
    """
    if name in NEUTRAL:
        if not has_no_effect(value, NEUTRAL[name]):
            reason = REASONS.get(name, f"{name} is not supported by this engine: leave it out")
            raise RequestError(400, reason, param=name)
        return True
    if name in of_other_routes:
        default = of_other_routes[name].get_default(call_default_factory=True)
        if value is not None and value != default:
            reason = f"{name} is not a parameter of this route and has no effect: leave it out"
            raise RequestError(400, reason, param=name)
        return True
    return name in IGNORED


def _is_same(value: Any, neutral: Any) -> bool:
    return type(value) is type(neutral) and bool(value == neutral)
