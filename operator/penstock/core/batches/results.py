"""Results of lines: what an answer of the gateway means, and the line of the file that it becomes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.core.formats.json_text import parse_json

# Answers with a 5xx that may be the request's own fault, such as one that ends the engine: after so many it
# is the line's result. Refusals (429, 503) and lost connections are repeated until the batch's time is over.
MAX_SERVER_ERRORS = 5
# Most characters of an answer that is no JSON which a result repeats.
MAX_TEXT_CHARACTERS = 1000

# Code for a tenant that stores as much as it may.
STORAGE_FULL = "storage_full"
Cause = Literal["batch_expired", "batch_cancelled"]
MESSAGES: Mapping[Cause, str] = {
    "batch_expired": "This request could not be executed before the completion window expired.",
    "batch_cancelled": "This request was not executed, as its batch was cancelled.",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the gateway. retry_after_s: that it asks for; None: none."""

    status: int
    body: bytes
    request_id: str = ""
    retry_after_s: float | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """Whether the same request may be accepted later, as the gateway or its tenant has no room now.

        401 is a gateway that does not know the tenant yet, or no longer.
        """
        return self.status in (401, 408, 429, 503) or self._code == "tenant_suspended"

    @property
    def is_server_error(self) -> bool:
        return self.status >= 500

    @property
    def _code(self) -> object:
        if self.status != 403:
            return None
        error = _json_of(self.body).get("error")
        return error.get("code") if isinstance(error, dict) else None


def result_line(line_id: str, custom_id: str, answer: Answer) -> bytes:
    """The result of a line that was answered, in the form of OpenAI's output and error files."""
    response = {
        "status_code": answer.status,
        "request_id": answer.request_id,
        "body": _json_of(answer.body),
    }
    return _line({"id": line_id, "custom_id": custom_id, "response": response, "error": None})


def unexecuted_line(line_id: str, custom_id: str, code: str, message: str) -> bytes:
    """The result of a line that was not executed. code: a Cause, or of the error that ended the batch."""
    error = {"code": code, "message": message}
    return _line({"id": line_id, "custom_id": custom_id, "response": None, "error": error})


def _json_of(body: bytes) -> dict[str, Any]:
    try:
        value = parse_json(body)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    text = body[: 4 * MAX_TEXT_CHARACTERS].decode(errors="replace")[:MAX_TEXT_CHARACTERS]
    return {"error": {"message": text, "code": "unreadable_answer"}}


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
