"""OpenAI's wire format: parsing requests, and the form of errors and of the list of models."""

import json
from dataclasses import replace

import pytest

from penstock.core.routing.affinity import affinity_key
from penstock.core.routing.apis import CHAT
from penstock.gateway.apis.openai import (
    MAX_CONTAINERS,
    MAX_FIELDS,
    MAX_USER_CHARACTERS,
    ModelList,
    RequestError,
    error_body,
    error_event,
    models,
    parse,
)
from penstock.gateway.snapshots.snapshot import Snapshot


def body(**fields):
    return json.dumps({"model": "chat"} | fields).encode()


def test_fields_that_routing_needs():
    messages = [{"role": "user", "content": "Hello"}]
    text = body(stream=True, user="ada", messages=messages)
    request = parse(text, CHAT)
    assert (request.model, request.body, request.is_stream, request.user) == (
        "chat",
        text,
        True,
        "ada",
    )
    assert (request.prompt_bytes, request.tokens) == (5, 1 + 256)
    fields = {"user": "ada", "messages": messages}
    assert request.user_key == affinity_key("User", fields, CHAT)
    assert request.conversation_key == affinity_key("Conversation", fields, CHAT)
    assert request.user_key != request.conversation_key
    assert request.affinity_key("None") is None
    assert request.affinity_key("User") == request.user_key
    assert request.affinity_key("Conversation") == request.conversation_key


def test_absent_fields():
    request = parse(body(), CHAT)
    assert (request.is_stream, request.user, request.user_key, request.prompt_bytes) == (
        False,
        None,
        None,
        0,
    )


@pytest.mark.parametrize("length", [MAX_USER_CHARACTERS, MAX_USER_CHARACTERS + 1])
def test_too_long_user_counts_as_absent(length):
    user = "x" * length
    assert parse(body(user=user), CHAT).user == (user if length == MAX_USER_CHARACTERS else None)


@pytest.mark.parametrize("kind", [b"[]", b"{}", b"[{}]"])
def test_number_of_lists_and_objects_is_bounded(kind):
    num = (MAX_CONTAINERS - 2) // (kind.count(b"[") + kind.count(b"{"))
    inside = b",".join([kind] * num)
    assert parse(b'{"model": "chat", "x": [%s]}' % inside, CHAT).model == "chat"
    with pytest.raises(RequestError) as caught:
        parse(b'{"model": "chat", "x": [%s,[]]}' % inside, CHAT)
    assert caught.value.status == 400
    assert caught.value.message == "the request body has more than 100000 lists and objects"


@pytest.mark.parametrize("blank", ["", " ", "\n", "\t \r"])
def test_number_of_fields_is_bounded(blank):
    """Brackets are few here, and each name would become a Python object."""
    names = ",".join(f'"{number:x}"{blank}:1' for number in range(MAX_FIELDS - 2))
    tools = f'"tools":[{{{names}}}]'
    assert parse(f'{{"model":"chat",{tools}}}'.encode(), CHAT).model == "chat"
    with pytest.raises(RequestError) as caught:
        parse(f'{{"model":"chat","n":1,{tools}}}'.encode(), CHAT)
    assert caught.value.status == 400
    assert caught.value.message == "the request body has more than 200000 fields"


def test_request_without_a_model_is_a_400():
    with pytest.raises(RequestError) as caught:
        parse(b'{"model": ""}', CHAT)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, "model", None)
    assert caught.value.message == "you must provide a model, as a string"


def test_body_that_is_not_json_is_a_400():
    with pytest.raises(RequestError) as caught:
        parse(b"{", CHAT)
    assert caught.value.status == 400
    assert caught.value.message.startswith("the request body cannot be read: Invalid JSON")


def test_with_model_rewrites_the_body():
    request = parse(b'{"model": "chat",  "x": 1}', CHAT)
    assert request.with_model("chat") is request
    other = request.with_model("other")
    assert other.body == b'{"model": "other",  "x": 1}'
    assert other == replace(request, model="other", body=other.body)


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


def test_the_list_of_models_is_encoded_once_for_each_snapshot(make_service):
    found, first, second = ModelList(), Snapshot((make_service(),)), Snapshot()
    body = found.body(first)
    assert json.loads(body) == models(first)
    assert found.body(first) is body
    assert json.loads(found.body(second)) == {"object": "list", "data": []}


def test_models(make_service):
    services = (
        make_service(created_s=7),
        make_service(namespace="other", created_s=8),
        make_service(name="svc", served_name="Qwen3", created_s=9),
    )
    listed = models(Snapshot(services))
    named = [("chat", 7), ("other/chat", 8), ("Qwen3", 9)]
    assert listed == {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": created_s, "owned_by": "penstock"}
            for name, created_s in named
        ],
    }
