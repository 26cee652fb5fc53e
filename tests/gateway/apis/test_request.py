"""Parsing requests: the fields that the gateway reads, and bounds on bodies."""

import json
from dataclasses import replace

import pytest

from penstock.core.routing.apis import CHAT, COMPLETIONS
from penstock.core.routing.prefix.prompt_prefix import hash_text
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.request import (
    MAX_COMMAS,
    MAX_CONTAINERS,
    MAX_FIELDS,
    MAX_USER_CHARACTERS,
    parse,
)


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
    prompt = CHAT.prompt_of(fields)
    prefix = hash_text(prompt.encoded)
    assert request.attributes == RequestAttributes.of(fields, prompt, prefix)
    assert request.attributes.user_key != request.attributes.conversation_key
    assert request.affinity_key("None") is None
    assert request.affinity_key("User") == request.attributes.user_key
    assert request.affinity_key("Conversation") == request.attributes.conversation_key


def test_blanks_between_json_values_do_not_count():
    text = b'{"model": "chat",' + b" " * (1 << 20) + b'"prompt": "four"}'
    request = parse(text, COMPLETIONS)
    assert (request.prompt_bytes, request.tokens) == (4, 257)


def test_prompts_with_media_are_not_text_alone():
    image = {"type": "image_url", "image_url": {"url": "x"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "abc"}, image]}]
    assert not parse(body(messages=messages), CHAT).is_text_only
    assert parse(body(messages=[{"role": "user", "content": "abc"}]), CHAT).is_text_only


def test_absent_fields():
    request = parse(body(), CHAT)
    assert (request.is_stream, request.user, request.attributes.user_key, request.prompt_bytes) == (
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


def test_number_of_commas_is_bounded():
    """A list has few brackets and no names, and each of its items takes time."""
    numbers = b"0," * (MAX_COMMAS - 2)
    body = b'{"model": "chat", "prompt": [%s0], "n": 1}'
    assert parse(body % numbers, CHAT).prompt_bytes == 4 * (MAX_COMMAS - 1)
    with pytest.raises(RequestError) as caught:
        parse(body % (numbers + b"0,"), CHAT)
    assert caught.value.status == 400
    assert caught.value.message == "the request body has more than 800000 commas between values"


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
