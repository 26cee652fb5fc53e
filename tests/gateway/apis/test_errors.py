"""The form of the gateway's own errors, whole and in a stream."""

import json

import pytest

from penstock.gateway.apis.errors import RequestError, error_body, error_event


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (404, "not_found_error"), (405, "invalid_request_error"),
        (499, "invalid_request_error"), (500, "internal_error"), (501, "internal_error"),
        (502, "upstream_error"), (503, "overloaded_error"), (504, "upstream_error"),
        (505, "internal_error"),
    ],
)  # fmt: skip
def test_error_body(status, kind):
    error = {"message": "no", "type": kind, "param": None, "code": status}
    assert json.loads(error_body(status, "no")) == {"error": error}
    kind = "unavailable_error" if status == 503 else kind
    named = error | {"type": kind, "param": "model", "code": "c"}
    assert json.loads(error_body(status, "no", param="model", code="c")) == {"error": named}
    assert json.loads(RequestError(status, "no", param="model", code="c").body()) == {
        "error": named
    }


def test_error_event():
    first, second, end = error_event(504, "late").split(b"\n\n")
    error = {"message": "late", "type": "upstream_error", "param": None, "code": 504}
    assert json.loads(first.removeprefix(b"data: ")) == {"error": error}
    assert (second, end) == (b"data: [DONE]", b"")
