"""Errors that the gateway answers with, in the form of the API that was asked."""

import json
from typing import Any

from penstock.core.routing.apis import ErrorForm
from penstock.core.routing.charge import Ending
from penstock.core.routing.error_types import openai_error_type

# Reasons of errors that have neither a reason nor a code, by status; of all others: invalid_request.
REASONS = {
    408: "timeout", 413: "too_large", 431: "too_large", 500: "internal", 502: "engines_failed",
    503: "no_endpoint", 504: "timeout",
}  # fmt: skip
DONE_EVENT = b"data: [DONE]\n\n"
# `Retry-After` of a 503 that has no better estimate.
RETRY_AFTER_S = 5


class RequestError(Exception):
    """A request that the gateway answers with an error of its own.

    status: of HTTP. message: for the client. param, code, kind: fields of OpenAI's error object, of which
    kind is its type; without them the status tells. retry_after_s: sent as `Retry-After`; None: not sent.
    reason: label of the metric; empty: the code, else that of the status. ending: of the request; None: the
    status tells.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        retry_after_s: int | None = None,
        reason: str = "",
        ending: Ending | None = None,
    ) -> None:
        super().__init__(message)
        self.ending = ending
        self.reason = reason or code or REASONS.get(status, "invalid_request")
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.kind = kind
        self.retry_after_s = retry_after_s

    def body(self, form: ErrorForm = "OpenAI") -> bytes:
        """The body of the HTTP response."""
        return error_body(
            self.status, self.message, param=self.param, code=self.code, kind=self.kind, form=form
        )


# Types of Anthropic's errors by status; of all others invalid_request_error or api_error.
ANTHROPIC_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 408: "timeout_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


def error_body(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    kind: str | None = None,
    form: ErrorForm = "OpenAI",
) -> bytes:
    """An error as JSON. code, kind: by the status if None. Anthropic's form has none of the three."""
    if form == "Anthropic":
        kind = ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return json.dumps(_as_event({"type": kind, "message": message})).encode()
    error = {
        "message": message,
        "type": kind or openai_error_type(status, code),
        "param": param,
        "code": code or status,
    }
    return json.dumps({"error": error}).encode()


def body_as_event(body: bytes, form: ErrorForm = "OpenAI") -> bytes:
    """An error response's body as the last event of a stream, with the DONE event if the API has one."""
    name, end = (b"", DONE_EVENT) if form == "OpenAI" else (b"event: error\n", b"")
    return name + b"data: " + body.replace(b"\n", b"\ndata: ") + b"\n\n" + end


def error_event(status: int, message: str, form: ErrorForm = "OpenAI") -> bytes:
    """The error event that ends a stream which is cut off, with the DONE event if the API has one."""
    if form == "Anthropic":
        return body_as_event(error_body(status, message, form=form), form)
    error = {"message": message, "type": "upstream_error", "param": None, "code": status}
    body = {"error": error} if form == "OpenAI" else _as_event(error)
    return body_as_event(json.dumps(body).encode(), form)


def _as_event(error: dict[str, Any]) -> dict[str, Any]:
    """An error in the form of Anthropic's bodies and events, and of the events of OpenAI's responses."""
    return {"type": "error", "error": error}
