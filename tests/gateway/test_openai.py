"""OpenAI's wire format: what is read of a request, and errors and models as clients see them."""

import json
from dataclasses import replace

import pytest

from penstock.core.routing.affinity import sticky_key
from penstock.gateway.openai import (
    MAX_CONTAINERS,
    MAX_USER_CHARACTERS,
    Refused,
    cut_event,
    error_body,
    models,
    parse,
)
from penstock.gateway.snapshot import Snapshot


def body(**fields):
    return json.dumps({"model": "chat"} | fields).encode()


def test_what_routing_needs_of_a_request():
    messages = [{"role": "user", "content": "Hello"}]
    text = body(stream=True, user="ada", messages=messages)
    call = parse(text)
    assert (call.model, call.body, call.is_stream, call.user) == ("chat", text, True, "ada")
    assert (call.prompt_bytes, call.tokens) == (5, 1 + 256)
    fields = {"user": "ada", "messages": messages}
    assert call.user_key == sticky_key("User", fields)
    assert call.conversation_key == sticky_key("Conversation", fields)
    assert call.user_key != call.conversation_key
    assert call.sticky_key("None") is None
    assert call.sticky_key("User") == call.user_key
    assert call.sticky_key("Conversation") == call.conversation_key


def test_what_is_absent():
    call = parse(body())
    assert (call.is_stream, call.user, call.user_key, call.prompt_bytes) == (False, None, None, 0)


@pytest.mark.parametrize("length", [MAX_USER_CHARACTERS, MAX_USER_CHARACTERS + 1])
def test_a_user_that_is_too_long_is_nobody(length):
    user = "x" * length
    assert parse(body(user=user)).user == (user if length == MAX_USER_CHARACTERS else None)


@pytest.mark.parametrize("kind", [b"[]", b"{}", b"[{}]"])
def test_as_many_lists_and_objects_as_there_may_be(kind):
    num = (MAX_CONTAINERS - 2) // (kind.count(b"[") + kind.count(b"{"))
    inside = b",".join([kind] * num)
    assert parse(b'{"model": "chat", "x": [%s]}' % inside).model == "chat"
    with pytest.raises(Refused) as refused:
        parse(b'{"model": "chat", "x": [%s,[]]}' % inside)
    assert refused.value.status == 400
    assert refused.value.message == "the request body has more than 100000 lists and objects"


def test_a_request_without_a_model():
    with pytest.raises(Refused) as refused:
        parse(b'{"model": ""}')
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, "model", None)
    assert refused.value.message == "you must provide a model, as a string"


def test_a_body_that_is_not_json():
    with pytest.raises(Refused) as refused:
        parse(b"{")
    assert refused.value.status == 400
    assert refused.value.message.startswith("the request body cannot be read: Invalid JSON")


def test_the_name_that_the_engine_knows():
    call = parse(b'{"model": "chat",  "x": 1}')
    assert call.renamed("chat") is call
    other = call.renamed("other")
    assert json.loads(other.body) == {"model": "other", "x": 1}
    assert other == replace(call, model="other", body=other.body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (404, "not_found_error"), (405, "invalid_request_error"),
        (499, "invalid_request_error"), (500, "internal_error"), (501, "internal_error"),
        (502, "upstream_error"), (503, "overloaded_error"), (504, "upstream_error"),
        (505, "internal_error"),
    ],
)  # fmt: skip
def test_the_body_of_an_error(status, kind):
    error = {"message": "no", "type": kind, "param": None, "code": status}
    assert json.loads(error_body(status, "no")) == {"error": error}
    named = error | {"param": "model", "code": "c"}
    assert json.loads(error_body(status, "no", param="model", code="c")) == {"error": named}
    assert json.loads(Refused(status, "no", param="model", code="c").body()) == {"error": named}


def test_the_last_event_of_a_stream_that_is_cut():
    first, second, end = cut_event(504, "late").split(b"\n\n")
    error = {"message": "late", "type": "upstream_error", "param": None, "code": 504}
    assert json.loads(first.removeprefix(b"data: ")) == {"error": error}
    assert (second, end) == (b"data: [DONE]", b"")


def test_models_as_a_client_lists_them(make_service):
    services = (
        make_service(created_s=7),
        make_service(namespace="other", created_s=8),
        make_service(name="svc", served_name="Qwen3", created_s=9),
    )
    told = models(Snapshot(services))
    named = [("default/chat", 7), ("other/chat", 8), ("Qwen3", 9)]
    assert told == {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": created_s, "owned_by": "penstock"}
            for name, created_s in named
        ],
    }
