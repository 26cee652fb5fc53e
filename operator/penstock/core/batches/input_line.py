"""Parses a line of an input file: one request, which the gateway gets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.batches.records import BatchError
from penstock.core.formats.json_text import parse_json
from penstock.core.routing.apis import APIS

# Paths that a batch may be for: those of requests for which a model computes something.
ENDPOINTS = tuple(api.path for api in APIS if api.usage is not None)
# Bound on the characters of a line's own name, which each result repeats.
MAX_CUSTOM_ID_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class InputLine:
    """A request of an input file. index: among the lines that are not blank, from 0. body: JSON."""

    index: int
    custom_id: str
    model: str
    body: bytes


class InputLineError(Exception):
    """A line that is refused."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param

    def at(self, number: int) -> BatchError:
        """The error of the line with this number."""
        return BatchError(self.code, str(self), number, self.param)


def parse_line(text: bytes, index: int, endpoint: str) -> InputLine:
    """Parse a line. endpoint: of the batch. Raises InputLineError."""
    fields = _fields(text)
    custom_id = fields.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARACTERS:
        message = f"custom_id must be a text of 1 to {MAX_CUSTOM_ID_CHARACTERS} characters"
        raise InputLineError("invalid_custom_id", message, "custom_id")
    if fields.get("method") != "POST":
        raise InputLineError("invalid_method", "method must be POST", "method")
    if fields.get("url") != endpoint:
        message = f"url must be {endpoint}, the endpoint of the batch"
        raise InputLineError("mismatched_endpoint", message, "url")
    body = fields.get("body")
    if not isinstance(body, dict):
        raise InputLineError("invalid_body", "body must be a JSON object", "body")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InputLineError("missing_model", "body.model must name a model", "body.model")
    for name in ("stream", "background"):
        if body.get(name) not in (None, False):
            message = f"body.{name} must be false: a result is one complete answer"
            raise InputLineError(f"{name}_not_supported", message, f"body.{name}")
    return InputLine(index, custom_id, model, _json_of(body))


def _fields(text: bytes) -> Mapping[str, Any]:
    try:
        fields = parse_json(text)
    except ValueError:
        raise InputLineError("invalid_json_line", "the line is not valid JSON in UTF-8") from None
    if not isinstance(fields, dict):
        raise InputLineError("invalid_json_line", "the line must be a JSON object")
    return fields


def _json_of(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        message = "body has a number that JSON does not have, or is nested too deeply"
        raise InputLineError("invalid_body", message, "body") from None
