"""OpenAI's wire format, as far as a gateway must understand it: one name, and errors."""

import json
from dataclasses import dataclass
from typing import Any

from penstock.gateway.snapshot import Snapshot

# Tokens are estimated, not counted: about four bytes of JSON each, and an answer of some length.
BYTES_PER_TOKEN = 4
ANSWER_TOKENS = 256
CHAT_PATH = "/v1/chat/completions"


class Refused(Exception):
    """An answer that is an error. The message is for the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        return error_body(self.status, self.message, param=self.param, code=self.code)


@dataclass(frozen=True, slots=True)
class Call:
    """A request, understood as little as needed. fields: the whole body, parsed."""

    model: str
    body: bytes
    fields: dict[str, Any]

    @property
    def tokens(self) -> int:
        """An estimate of the KV tokens that it will hold."""
        return len(self.body) // BYTES_PER_TOKEN + ANSWER_TOKENS

    @property
    def is_stream(self) -> bool:
        return self.fields.get("stream") is True

    def body_for(self, served_name: str) -> bytes:
        """The client's own bytes, unless the engine knows the model by another name."""
        if served_name == self.model:
            return self.body
        return json.dumps(self.fields | {"model": served_name}).encode()


def parse(body: bytes) -> Call:
    """Raises Refused."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the request body is not valid JSON") from None
    if not isinstance(fields, dict):
        raise Refused(400, "the request body must be a JSON object")
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise Refused(400, "you must provide a model, as a string", param="model")
    return Call(model, body, fields)


def error_body(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> bytes:
    error = {
        "message": message,
        "type": _error_type(status),
        "param": param,
        "code": code or status,
    }
    return json.dumps({"error": error}).encode()


def cut_event(status: int, message: str) -> bytes:
    """The last words of a stream that cannot go on."""
    error = {"message": message, "type": "upstream_error", "param": None, "code": status}
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\ndata: [DONE]\n\n"


def models(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": service.created_s, "owned_by": "penstock"}
            for name, service in snapshot.models()
        ],
    }


def _error_type(status: int) -> str:
    if status == 404:
        return "not_found_error"
    if status in (502, 504):
        return "upstream_error"
    if status == 503:
        return "overloaded_error"
    return "invalid_request_error" if status < 500 else "internal_error"
