"""Errors of requests in OpenAI's format. They reveal nothing about the machine."""

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError

RETRY_AFTER_S = 1
MAX_MESSAGE_CHARS = 500

ERROR_TYPES = {
    401: "AuthenticationError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
    504: "DeadlineExceededError",
}


class RequestError(Exception):
    """A request that fails with an HTTP status.

    param: the parameter that is wrong. code: a word for programs; None: the status. The response to a 503
    has a Retry-After header.
    """

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        error = {
            "message": self.message[:MAX_MESSAGE_CHARS],
            "type": ERROR_TYPES.get(self.status, "BadRequestError"),
            "param": self.param,
            "code": self.code or self.status,
        }
        return {"error": error}

    def response(self) -> JSONResponse:
        headers = {"Retry-After": str(RETRY_AFTER_S)} if self.status == 503 else None
        return JSONResponse(self.body(), self.status, headers=headers)


def from_validation(error: ValidationError) -> RequestError:
    """Returns the first error of a validation, with the name of its field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    param = str(first["loc"][0]) if first["loc"] else None
    return RequestError(400, f"{where}: {message}" if where else message, param=param)
