"""Which parts of a request body count as text of its prompt."""

import pytest

from penstock.core.routing.apis import CHAT
from penstock.core.routing.prompt_kinds import MAX_VALUES

TOOL = {"type": "function", "function": {"name": "sum", "description": "adds"}}
CALL = {"id": "1", "function": {"name": "sum", "arguments": "{}"}}


def text_bytes(fields):
    return len(CHAT.prompt_of(fields).encoded)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 0),
        ({"tools": [TOOL]}, 0),
        ({"prompt": "abcd", "tools": [TOOL]}, 4),
        ({"messages": [{"content": "abc"}], "prompt": "longer"}, 3),
        ({"prompt": "abcd"}, 4),
        ({"prompt": "\u00e9\ud800"}, 5),
        ({"prompt": ["ab", "cde"]}, 5),
        ({"prompt": [1, 2, 3]}, 12),
        ({"prompt": [[1, 2], [3]]}, 12),
        ({"prompt": 7}, 0),
        ({"prompt": "abc", "suffix_like": "x" * 99}, 3),
        ({"messages": [{"role": "user", "content": "abc"}, {"content": "de"}]}, 5),
        ({"messages": [{"content": None, "tool_calls": [CALL]}]}, 2 + 1 + 8 + 4 + 3 + 9 + 2),
        ({"messages": "no"}, 0),
        ({"messages": [7, {"content": 7}]}, 0),
        ({"messages": [], "tools": [TOOL]}, 4 + 8 + 8 + 4 + 3 + 11 + 4),
        (
            {
                "messages": [
                    {
                        "content": [
                            {"type": "text", "text": "abc"},
                            {"type": "image_url", "image_url": {"url": "x" * 1000}},
                            "loose",
                        ]
                    }
                ]
            },
            3,
        ),
    ],
)
def test_bytes_of_text(fields, expected):
    assert text_bytes(fields) == expected


class Counted(dict):
    """A dict that counts reads of its values."""

    num_read = 0

    def values(self):
        for value in super().values():
            self.num_read += 1
            yield value


def test_number_of_tool_values_read_is_bounded():
    tools = Counted({str(number): 1 for number in range(200_000)})
    assert text_bytes({"messages": [], "tools": [tools]}) > 50_000
    assert tools.num_read <= 20_001


def test_calls_and_tools_of_a_request_have_one_bound():
    """Values and keys count: a call is a list, an object, its key and its value."""
    messages = [{"tool_calls": [{"four": "4"}]}] * 10_000
    tools = [{"type": "function"}]
    num_calls = MAX_VALUES // 4
    assert text_bytes({"messages": messages, "tools": tools}) == num_calls * 5
    few = messages[: num_calls - 1]
    assert text_bytes({"messages": few, "tools": tools}) == 5 * len(few) + 4 + 8


@pytest.mark.parametrize(
    ("prompt", "expected"), [(["a", 1], 0), ([], 0), ([None], 0), ([[1], 2], 4)]
)
def test_invalid_prompts(prompt, expected):
    assert text_bytes({"prompt": prompt}) == expected


TEXT, IMAGE = {"type": "text", "text": "abc"}, {"type": "image_url", "image_url": {"url": "x"}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("abc", True),
        (None, True),
        ([], True),
        ([TEXT, {"text": "de"}], True),
        ([{"type": "input_text", "text": "abc"}], True),
        ([TEXT, IMAGE], False),
        ([{"image_url": "x"}], False),
        ([{"type": "image_url", "image_url": {"url": "x"}, "text": "abc"}], False),
    ],
)
def test_text_only_content(content, expected):
    messages = [{"role": "user", "content": "first"}, {"role": "user", "content": content}]
    assert CHAT.prompt_of({"messages": messages}).is_text_only == expected


def test_completion_is_text_only():
    assert CHAT.prompt_of({"prompt": [1, 2, 3]}).is_text_only
    assert CHAT.prompt_of({"messages": [7, {"content": ["loose"]}]}).is_text_only is False
