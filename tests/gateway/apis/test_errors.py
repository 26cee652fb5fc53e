"""The gateway's own errors, whole and in a stream, in the form of the API that was asked."""

import json

import pytest

from penstock.gateway.apis.errors import RequestError, body_as_event, error_body, error_event


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error"),
        (404, "not_found_error"), (405, "invalid_request_error"),
        (499, "invalid_request_error"), (500, "internal_error"), (501, "internal_error"),
        (502, "upstream_error"), (503, "overloaded_error"), (504, "upstream_error"),
        (505, "internal_error"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["OpenAI", "Responses"])
def test_error_body(status, kind, form):
    error = {"message": "no", "type": kind, "param": None, "code": status}
    assert json.loads(error_body(status, "no", form=form)) == {"error": error}
    kind = "unavailable_error" if status == 503 else kind
    named = error | {"type": kind, "param": "model", "code": "c"}
    whole = RequestError(status, "no", param="model", code="c")
    assert json.loads(whole.body(form)) == {"error": named}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error"),
        (404, "not_found_error"), (405, "invalid_request_error"), (408, "timeout_error"),
        (413, "request_too_large"), (429, "rate_limit_error"), (500, "api_error"), (502, "api_error"),
        (503, "overloaded_error"), (504, "timeout_error"),
    ],
)  # fmt: skip
def test_error_body_of_anthropics_api(status, kind):
    error = RequestError(status, "no", param="model", code="c")
    assert json.loads(error.body("Anthropic")) == {
        "type": "error",
        "error": {"type": kind, "message": "no"},
    }


LATE = {"message": "late", "type": "upstream_error", "param": None, "code": 504}


@pytest.mark.parametrize(
    ("form", "name", "body", "end"),
    [
        ("OpenAI", b"", {"error": LATE}, b"data: [DONE]\n\n"),
        ("Responses", b"event: error\n", {"type": "error", "error": LATE}, b""),
        (
            "Anthropic",
            b"event: error\n",
            {"type": "error", "error": {"type": "timeout_error", "message": "late"}},
            b"",
        ),
    ],
)
def test_error_event(form, name, body, end):
    assert (
        error_event(504, "late", form) == name + b"data: %b\n\n" % json.dumps(body).encode() + end
    )
    assert body_as_event(b"{\n}", form) == name + b"data: {\ndata: }\n\n" + end


async def test_errors_of_the_gateway_have_the_form_of_the_route(start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    for path, status, message in (
        ("/v1/messages", 404, "the model `no` does not exist"),
        ("/v1/messages/count_tokens", 404, "the model `no` does not exist"),
        ("/v1/messages/batches", 404, "the gateway has no route POST /v1/messages/batches"),
    ):
        async with front.post(path, model="no") as got:
            body = json.loads(await got.read())
            assert (got.status, got.content_type) == (status, "application/json")
        assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
        assert body["error"]["message"].startswith(message)
        assert set(body) == {"type", "error"}
    status, body = await front.ask("/v1/embeddings", model="no")
    assert (status, json.loads(body)["error"]["code"]) == (404, "model_not_found")
    status, body = await front.ask("/v1/messagess")
    assert (status, json.loads(body)["error"]["code"]) == (404, 404)
