"""Errors in the form of OpenAI's API."""

import json

from aiohttp import web

from penstock.core.routing.error_types import openai_error_type

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
        kind = openai_error_type(self.status, self.code)
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
