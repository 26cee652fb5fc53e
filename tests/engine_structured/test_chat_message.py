"""Tests of chat messages built from generated text, whole and streamed."""

import json
import re
from typing import Any

import pytest
from tests.engine_structured.streamed_calls import append_call

from penstock_engine.parsers.tool_format import HERMES, MISTRAL
from penstock_engine.server.answers.chat_message import ChatMessageBuilder
from penstock_engine.server.generation.answer_format import AnswerFormat
from penstock_engine.server.generation.generator import Piece
from penstock_engine.server.requests.tools import CallParam

CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>'
FUNCTION = {"name": "now", "arguments": '{"zone": "UTC"}'}
TOOLS = {"call_format": HERMES, "tool_names": frozenset({"now"})}

PLAIN = {"role": "assistant", "reasoning": None, "finish_reason": "stop"}


def view(text: str, reason: str = "stop", **form: Any) -> dict[str, Any]:
    """Returns message and finish_reason, after comparing them with a stream of single characters."""
    failed: list[str] = []
    whole = ChatMessageBuilder(AnswerFormat(**form), lambda: failed.append("whole"))
    piece = Piece(text, (), (), reason)
    message = whole.message(piece)
    streamed = ChatMessageBuilder(AnswerFormat(**form), lambda: failed.append("streamed"))
    pieces = [Piece(character, (), ()) for character in text] + [Piece("", (), (), reason)]
    deltas = [streamed.delta(piece) for piece in pieces]
    assert failed in ([], ["whole", "streamed"])
    for field in ("content", "reasoning"):
        joined = "".join(delta.get(field, "") for delta in deltas)
        assert joined == (message.get(field) or "")
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        for call in delta.get("tool_calls", ()):
            append_call(calls, call)
    functions = [call["function"] for call in calls]
    assert functions == [call["function"] for call in message.get("tool_calls", ())]
    assert streamed.finish_reason(pieces[-1]) == whole.finish_reason(piece)
    return message | {"finish_reason": whole.finish_reason(piece)}


@pytest.mark.parametrize("arguments", ['{"zone": "U', "{zone}", '{"zone": NaN}'])
def test_a_call_that_was_cut_off_can_be_sent_back(arguments: str) -> None:
    text = f'<tool_call>\n{{"name": "now", "arguments": {arguments}'
    (call,) = view(text, "length", **TOOLS)["tool_calls"]
    assert call["function"]["arguments"] == arguments
    sent_back = CallParam.model_validate(call).for_template()
    assert sent_back["function"] == {"name": "now", "arguments": arguments}


def test_text_is_content() -> None:
    assert view("hello") == PLAIN | {"content": "hello"}
    assert view("") == PLAIN | {"content": ""}


def test_tool_calls_have_unique_ids_of_openais_form() -> None:
    answer = view(f"Let me see. {CALL}\n{CALL}", **TOOLS)
    assert answer["content"] == "Let me see. "
    assert answer["finish_reason"] == "tool_calls"
    assert [call["function"] for call in answer["tool_calls"]] == [FUNCTION, FUNCTION]
    ids = {call["id"] for call in answer["tool_calls"]}
    assert len(ids) == 2
    assert all(re.fullmatch(r"call_[A-Za-z0-9]{24}", i) for i in ids)
    assert {call["type"] for call in answer["tool_calls"]} == {"function"}


def test_mistral_call_ids_have_nine_characters() -> None:
    text = '[TOOL_CALLS][{"name": "now", "arguments": {}}]'
    (call,) = view(text, call_format=MISTRAL, tool_names=frozenset({"now"}))["tool_calls"]
    assert re.fullmatch(r"[A-Za-z0-9]{9}", call["id"])


def test_content_is_null_if_there_are_only_calls() -> None:
    assert view(f"\n{CALL}\n", **TOOLS)["content"] is None


def test_only_the_first_call_is_kept_without_parallel_calls() -> None:
    assert len(view(CALL + CALL, **TOOLS, is_parallel=False)["tool_calls"]) == 1


@pytest.mark.parametrize(
    ("reason", "is_named", "expected"),
    [("stop", False, "tool_calls"), ("stop", True, "stop"), ("length", False, "length")],
)
def test_finish_reason_of_an_answer_with_calls(reason: str, is_named: bool, expected: str) -> None:
    assert view(CALL, reason, **TOOLS, is_named=is_named)["finish_reason"] == expected


def test_a_call_of_an_unknown_tool_is_content() -> None:
    text = CALL.replace("now", "later")
    assert view(text, **TOOLS) == PLAIN | {"content": text}


def test_reasoning_is_separated_or_hidden() -> None:
    answer = view("<think>hm</think>yes", is_thinking=False)
    assert (answer["reasoning"], answer["content"]) == ("hm", "yes")
    assert view("hm", "length", is_thinking=True)["content"] is None
    hidden = view("hm</think>yes", is_thinking=True, shows_reasoning=False)
    assert hidden["reasoning"] is None
    assert hidden["content"] == "yes"


def test_calls_are_parsed_after_reasoning() -> None:
    answer = view(f"hm</think>\n\n{CALL}", is_thinking=True, **TOOLS)
    assert (answer["reasoning"], answer["content"]) == ("hm", None)
    assert json.loads(answer["tool_calls"][0]["function"]["arguments"]) == {"zone": "UTC"}
