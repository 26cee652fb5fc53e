"""Affinity keys of conversations and users."""

import pytest

from penstock.core.routing.affinity import affinity_key
from penstock.core.routing.apis import CHAT, COMPLETIONS

SYSTEM = {"role": "system", "content": "You are kind."}
FIRST = {"role": "user", "content": "What is a penstock?"}
ANSWER = {"role": "assistant", "content": "A pipe."}
SECOND = {"role": "user", "content": "How long?"}


def conversation(*messages):
    return affinity_key("Conversation", {"messages": list(messages)}, CHAT)


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
    ("by", "fields", "is_known"),
    [
        ("None", {"messages": [FIRST], "user": "u"}, False),
        ("User", {"user": "u"}, True),
        ("User", {"user": ""}, False),
        ("User", {"user": 7}, False),
        ("User", {}, False),
        ("Conversation", {"prompt": "Once"}, True),
        ("Conversation", {"prompt": [1, 2, 3]}, True),
        ("Conversation", {"prompt": ""}, False),
        ("Conversation", {}, False),
        ("Conversation", {"messages": []}, False),
        ("Conversation", {"messages": ["text"]}, False),
        ("Conversation", {"messages": [{"role": "user", "content": None}]}, True),
        ("Conversation", {"messages": [{"role": "user", "content": [7, {"text": 7}]}]}, True),
    ],
)
def test_what_says_enough(by, fields, is_known):
    assert (affinity_key(by, fields, CHAT) is not None) == is_known


def test_a_prompt_is_known_by_its_beginning():
    long, longer = (
        affinity_key("Conversation", {"prompt": "x" * length}, COMPLETIONS) for length in (300, 999)
    )
    assert long == longer
