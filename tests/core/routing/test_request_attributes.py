"""Keys of conversations and users."""

import pytest

from penstock.core.routing.apis import CHAT
from penstock.core.routing.request_attributes import RequestAttributes

SYSTEM = {"role": "system", "content": "You are kind."}
FIRST = {"role": "user", "content": "What is a penstock?"}
ANSWER = {"role": "assistant", "content": "A pipe."}
SECOND = {"role": "user", "content": "How long?"}


def attributes_of(fields):
    return RequestAttributes.of(fields, CHAT.prompt_of(fields))


def conversation(*messages):
    return attributes_of({"messages": list(messages)}).conversation_key


def test_a_conversation_is_one_at_each_turn():
    first = conversation(SYSTEM, FIRST)
    assert first == conversation(SYSTEM, FIRST, ANSWER, SECOND)
    assert first == conversation(SYSTEM, {"content": FIRST["content"], "role": "user", "name": "n"})


@pytest.mark.parametrize("other", [(SYSTEM, SECOND), (FIRST,), (SYSTEM, SYSTEM, FIRST)])
def test_another_beginning_is_another_conversation(other):
    assert conversation(SYSTEM, FIRST) != conversation(*other)


def test_parts_of_a_message_are_read_for_their_text():
    image = {"type": "image_url", "image_url": {"url": "data:" + "x" * 1000}}
    parts = [image, {"type": "text", "text": FIRST["content"]}]
    assert conversation({"role": "user", "content": parts}) == conversation(FIRST)


@pytest.mark.parametrize(
    ("fields", "has_user", "has_conversation"),
    [
        ({"user": "u"}, True, False),
        ({"user": ""}, False, False),
        ({"user": 7}, False, False),
        ({"user": "\ud800"}, True, False),
        ({}, False, False),
        ({"prompt": "Once"}, False, True),
        ({"prompt": [1, 2, 3]}, False, True),
        ({"prompt": ""}, False, False),
        ({"messages": []}, False, False),
        ({"messages": ["text"]}, False, False),
        ({"messages": [{"role": "user", "content": None}]}, False, True),
        ({"messages": [{"role": "user", "content": [7, {"text": 7}]}]}, False, True),
    ],
)
def test_what_says_enough(fields, has_user, has_conversation):
    user_key, conversation_key, _ = attributes_of(fields)
    assert (user_key is not None, conversation_key is not None) == (has_user, has_conversation)


def test_a_prompt_is_known_by_its_beginning():
    assert attributes_of({"prompt": "x" * 300}) == attributes_of({"prompt": "x" * 999})
    assert attributes_of({"prompt": "x" * 255}) != attributes_of({"prompt": "x" * 999})


@pytest.mark.parametrize("first", ["x" * 256, [1] * 256], ids=["texts", "lists of token ids"])
def test_prompts_are_known_by_the_beginning_of_the_first(first):
    """The key of 256 lists of 10,000 token ids took a second of the event loop."""
    key = attributes_of({"prompt": [first]})
    assert key.conversation_key is not None
    assert attributes_of({"prompt": [first + first, first]}) == key
    assert attributes_of({"prompt": [first[1:], first]}) != key


def test_values_that_are_no_token_ids_are_not_read():
    assert attributes_of({"prompt": [1, [2] * 9]}) == attributes_of({"prompt": [1]})
