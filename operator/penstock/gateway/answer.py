"""The gateway's own answers, in the shape that OpenAI's clients read."""

import json
from typing import Any

KINDS = {
    400: "BadRequestError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "TimeoutError",
    413: "RequestTooLargeError",
    502: "upstream_error",
    503: "ServiceUnavailableError",
    504: "TimeoutError",
}

SSE_DONE = b"data: [DONE]\n\n"


class Refusal(Exception):
    """An answer that the gateway gives by itself."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


def error_body(status: int, message: str) -> bytes:
    error: dict[str, Any] = {
        "message": message,
        "type": KINDS.get(status, "BadRequestError"),
        "param": None,
        "code": status,
    }
    return json.dumps({"error": error}).encode()


def error_event(status: int, message: str) -> bytes:
    """The end of a stream that cannot go on."""
    return b"data: " + error_body(status, message) + b"\n\n" + SSE_DONE
