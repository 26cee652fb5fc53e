"""Default sampling parameters, from the model's generation_config.json or the operator's flags."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from penstock_engine.core.errors import ModelError
from penstock_engine.files.json_reader import read_json_object
from penstock_engine.server.requests.completion_request import GenerationRequest
from penstock_engine.server.transport.errors import from_validation

FILE_NAME = "generation_config.json"

# Parameters that vLLM reads from a generation_config.json, in addition to max_new_tokens.
PARAMETERS = ("min_p", "repetition_penalty", "temperature", "top_k", "top_p")


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """Defaults and limits of requests.

    parameters: values of fields that a request leaves out. max_tokens: answer length if the request
    sets none. max_tokens_cap: maximum answer length of every request. Lengths in tokens.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    max_tokens_cap: int | None = None


def generation_defaults(
    model_dir: Path, source: str, override: Mapping[str, Any]
) -> GenerationDefaults:
    """Reads the defaults by vLLM's rules for --generation-config.

    source: auto (the model's file), vllm (no file) or a folder with a file. override: values that
    replace those of the file. The model's max_new_tokens is a default; that of a folder or an
    override caps every answer. Raises ModelError if the file is missing or a value out of range.
    """
    is_folder = source not in ("auto", "vllm")
    path = (Path(source) if is_folder else model_dir) / FILE_NAME
    if is_folder and not path.is_file():
        raise ModelError("BadGenerationConfig", f"--generation-config: there is no {FILE_NAME}")
    content = {} if source == "vllm" or not path.is_file() else _read(path)
    merged = content | dict(override)
    parameters = {name: merged[name] for name in PARAMETERS if merged.get(name) is not None}
    max_tokens = merged.get("max_new_tokens")
    _check(parameters | ({} if max_tokens is None else {"max_tokens": max_tokens}))
    is_cap = is_folder or override.get("max_new_tokens") is not None
    return GenerationDefaults(parameters, max_tokens, max_tokens if is_cap else None)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path)
    except ValueError as error:
        raise ModelError("BadGenerationConfig", str(error)) from error


def _check(parameters: Mapping[str, Any]) -> None:
    """Validates defaults like the parameters of a request. Raises ModelError."""
    try:
        GenerationRequest.model_validate(parameters, strict=True)
    except ValidationError as error:
        message = from_validation(error).message
        raise ModelError("BadGenerationConfig", f"{FILE_NAME}: {message}") from error
