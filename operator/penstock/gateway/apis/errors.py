"""Errors that the gateway answers with, in OpenAI's form."""

import json

from penstock.core.routing.charge import Ending

# Reasons of errors that have neither a reason nor a code, by status; of all others: invalid_request.
REASONS = {
    408: "timeout", 413: "too_large", 431: "too_large", 500: "internal", 502: "engines_failed",
    503: "no_endpoint", 504: "timeout",
}  # fmt: skip
# `Retry-After` of a 503 that has no better estimate.
RETRY_AFTER_S = 5


class RequestError(Exception):
    """A request that the gateway answers with an error of its own.

    status: of HTTP. message: for the client. param, code: fields of OpenAI's error object; the status
    if there is no code. retry_after_s: sent as `Retry-After`; None: not sent. reason: label of the
    metric; empty: the code, else that of the status. ending: of the request; None: the status tells.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
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
        self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        """The body of the HTTP response, in OpenAI's form."""
        return error_body(self.status, self.message, param=self.param, code=self.code)


def error_body(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> bytes:
    """OpenAI's error object as JSON. code: the status if None."""
    error = {
        "message": message,
        "type": _error_type(status, code),
        "param": param,
        "code": code or status,
    }
    return json.dumps({"error": error}).encode()


def body_as_event(body: bytes) -> bytes:
    """An error response's body as the last event of a stream, and the DONE event."""
    return b"data: " + body.replace(b"\n", b"\ndata: ") + b"\n\ndata: [DONE]\n\n"


def error_event(status: int, message: str) -> bytes:
    """The error event and the DONE event that end a stream which is cut off."""
    error = {"message": message, "type": "upstream_error", "param": None, "code": status}
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\ndata: [DONE]\n\n"


def _error_type(status: int, code: str | None) -> str:
    if status == 404:
        return "not_found_error"
    if status in (502, 504):
        return "upstream_error"
    if status == 503:
        return "overloaded_error" if code is None else "unavailable_error"
    return "invalid_request_error" if status < 500 else "internal_error"
