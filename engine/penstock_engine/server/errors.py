"""Errors as OpenAI's clients read them, and nothing about this machine in them."""

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError


class RequestError(Exception):
    """An answer to a request that is not served."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        return error_body(self.status, self.message, self.param)

    def response(self) -> JSONResponse:
        headers = {"Retry-After": str(self.retry_after_s)} if self.retry_after_s else None
        return JSONResponse(self.body(), self.status, headers=headers)


KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    413: "RequestTooLargeError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


def error_body(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    kind = KINDS.get(status, "BadRequestError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def from_validation(error: ValidationError) -> RequestError:
    """The first thing that is wrong, by the name of its field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return RequestError(400, f"{where}: {message}" if where else message, param=where or None)
