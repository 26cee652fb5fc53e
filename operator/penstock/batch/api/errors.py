"""Errors in the form of OpenAI's API."""

import json

from aiohttp import web

# Types of OpenAI's errors by status; of all others invalid_request_error.
TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
# `Retry-After` of refusals that end at a time which the server does not know, in seconds.
RETRY_AFTER_S = 5


class ApiError(Exception):
    """A request that is refused. param: the field or parameter that is wrong."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def response(self) -> web.Response:
        """The error as a response."""
        kind = TYPES.get(self.status, "invalid_request_error")
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        headers = {"Retry-After": str(RETRY_AFTER_S)} if self.status in (429, 503) else None
        return web.Response(
            text=json.dumps({"error": error}),
            status=self.status,
            content_type="application/json",
            headers=headers,
        )


def not_found(kind: str, identifier: str) -> ApiError:
    """The error of a file or a batch that does not exist, or that another tenant has."""
    message = f"there is no {kind} {identifier[:64]!r}"
    return ApiError(404, message, param="id", code=f"{kind}_not_found")
