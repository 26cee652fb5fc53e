"""Buffering of server-sent events."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.apis import CHAT
from penstock.gateway.apis import sse
from penstock.gateway.apis.sse import (
    EVENT_ENDS,
    MAX_HELD_BYTES,
    UNCOUNTED_BYTES,
    SseBuffer,
    count_events,
    find_last_end,
    has_data,
    without_usage_event,
)

EVENTS = [
    b'data: {"n": 1}\n\n',
    b"data: a\ndata: b\n\n",
    b": ping\n\n",
    b"data: x\r\n\r\n",
    b"data: x\r\r",
]
ENDINGS = [b"data: [DONE]\r\r", b"data: [DONE]\n\n", b"data: [DONE]\r\n\r\n", b"data:[DONE]\n\n"]


@given(st.lists(st.sampled_from(EVENTS)), st.sampled_from(ENDINGS), st.lists(st.integers(0, 200)))
def test_any_chunking_yields_complete_events_without_loss(events, ending, cuts):
    text = b"".join(events) + ending
    at = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    stream = SseBuffer(CHAT)
    passed = b""

    for start, end in itertools.pairwise(at):
        passed += stream.feed(text[start:end])
        assert passed == b"" or passed.endswith(EVENT_ENDS)
        assert text.startswith(passed)

    assert passed == text
    assert stream.is_done
    assert stream.finish() == b""


def test_done_inside_text_is_not_the_end():
    stream = SseBuffer(CHAT)
    stream.feed(b'data: {"text": "data: [DONE]"}\n\n')
    assert not stream.is_done


def test_incomplete_event_is_held():
    stream = SseBuffer(CHAT)
    assert stream.feed(b'data: {"te') == b""
    assert stream.finish() == b""
    assert not stream.is_done


def test_large_incomplete_event_is_held_only_if_it_may_be():
    held = []

    def hold(num_bytes):
        held.append(num_bytes)
        return num_bytes <= UNCOUNTED_BYTES + 3

    stream, start = SseBuffer(CHAT, hold), b"data: ".ljust(UNCOUNTED_BYTES, b"x")
    assert [stream.feed(start), stream.feed(b"123")] == [b"", b""]
    assert stream.feed(b"4") == start + b"1234"  # in pieces from here
    assert stream.is_within_event
    assert stream.feed(b"5\n\n") == b"5\n\n"
    assert held == [0, UNCOUNTED_BYTES + 3, UNCOUNTED_BYTES + 4, 0]


def test_done_without_an_empty_line_counts_at_the_end():
    stream = SseBuffer(CHAT)
    assert stream.feed(b"data: x\n\ndata: [DONE]\n") == b"data: x\n\n"
    assert stream.finish() == b"data: [DONE]\n"
    assert stream.is_done


def test_held_bytes_are_bounded():
    stream = SseBuffer(CHAT)
    assert stream.feed(b"x" * MAX_HELD_BYTES) == b""
    assert len(stream.feed(b"y")) == MAX_HELD_BYTES + 1


def test_bytes_that_are_held_are_not_searched_again(monkeypatch):
    """An event that arrives byte by byte would cost its length at each byte."""
    searched = 0

    def count(events, start):
        nonlocal searched
        searched += len(events) - start
        return find_last_end(events, start)

    monkeypatch.setattr(sse, "find_last_end", count)
    stream, event = SseBuffer(CHAT), b"data: " + b"x" * 1000 + b"\r\n\r\n"
    assert b"".join(stream.feed(event[at : at + 1]) for at in range(len(event))) == event
    assert searched <= 4 * len(
        event
    )  # each byte with the three before it, in which an end may begin


@pytest.mark.parametrize(
    ("chunks", "passed"),
    [
        ([b"ab\n\ncd", b"\n\n"], [b"ab\n\n", b"cd\n\n"]),
        ([b"a\r\n\r\nb", b"\r\n\r\n"], [b"a\r\n\r\n", b"b\r\n\r\n"]),
        ([b"a\n\nb\r\n\r\nc", b"d\n\n"], [b"a\n\nb\r\n\r\n", b"cd\n\n"]),
        ([b"a\r\n\r\nb\n\nc", b"\n\n"], [b"a\r\n\r\nb\n\n", b"c\n\n"]),
        ([b"a", b"b", b"\n", b"\n"], [b"", b"", b"", b"ab\n\n"]),
        ([b"a\r\n\r", b"\n"], [b"", b"a\r\n\r\n"]),
        ([b"a\r", b"\n", b"\r", b"\n"], [b"", b"", b"", b"a\r\n\r\n"]),
        ([b"a\n", b"\nb\n", b"\n"], [b"", b"a\n\n", b"b\n\n"]),
        ([b"a\n\n", b""], [b"a\n\n", b""]),
    ],
)
def test_bytes_returned_for_each_chunk(chunks, passed):
    stream = SseBuffer(CHAT)
    assert [stream.feed(chunk) for chunk in chunks] == passed
    assert stream.finish() == b""


def test_is_done_from_the_done_event_on():
    stream = SseBuffer(CHAT)
    assert not stream.is_done
    assert stream.feed(b"data: x\n\ndata: [DONE]\n\n").endswith(b"[DONE]\n\n")
    assert stream.is_done
    stream.feed(b"")  # says nothing more
    assert stream.is_done
    stream.feed(b": ping\n\n")
    assert stream.is_done


@pytest.mark.parametrize("after", [b": bye\n\n", b": bye\r\n\r\n", b"\n", b"data: x\n\n"])
def test_done_counts_whatever_follows_it_in_its_chunk(after):
    stream = SseBuffer(CHAT)
    stream.feed(b"data: x\n\ndata: [DONE]\n\n" + after)
    assert stream.is_done


@pytest.mark.parametrize(
    ("chunk", "data", "events"),
    [
        (b": ping\n\n", False, 0),
        (b":\r\n\r\n", False, 0),
        (b"\n\n\n", False, 0),
        (b"event: ping\nid: 1\n\n: a\n\nretry: 5\n\n", False, 0),
        (b"data: x\n\n", True, 1),
        (b"data: x\r\rdata: y\r\r", True, 2),
        (b": ping\n\ndata: x\n\n", True, 1),
        (b"data: x\n\n: ping\n\ndata: y\n\n", True, 2),
        (b"data: x\n\n: ping\n\n", True, 1),
        (b"data: x\n\n: data\n\nid: data\n\n", True, 1),
        (b"event: a\ndata: x\n\nevent: b\ndata: y\n\n", True, 2),
        (b"data: x\n\ndata: half", True, 1),
        (b"half of one\n\ndata: x\n\n", True, 1),
    ],
)
def test_comments_are_no_events(chunk, data, events):
    assert (has_data(chunk), count_events(chunk)) == (data, events)


def test_pieces_of_a_large_event_are_within_it():
    stream = SseBuffer(CHAT)
    stream.feed(b"data: x\n\n")
    assert not stream.is_within_event
    stream.feed(b"data: " + b"x" * MAX_HELD_BYTES)
    assert stream.is_within_event
    stream.feed(b"\n\n")
    assert not stream.is_within_event


def test_rest_is_returned_once():
    stream = SseBuffer(CHAT)
    stream.feed(b"data: [DONE]")
    assert not stream.is_done
    assert stream.finish() == b"data: [DONE]"
    assert stream.is_done
    assert stream.finish() == b""
    assert stream.is_done


TOKEN = (
    b'data: {"choices":[{"delta":{"content":"\\"choices\\":[]"}}],"usage":{"completion_tokens":1}}'
)
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 2}}'
FILTER = b'data: {"choices":[],"prompt_filter_results":[]}'


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_only_the_event_that_has_usage_and_no_choice_is_left_out(end):
    done = b"data: [DONE]" + end
    assert without_usage_event(TOKEN + end + FILTER + end + USAGE + end + done) == (
        TOKEN + end + FILTER + end + done
    )
    assert without_usage_event(USAGE + end) == b""
    assert without_usage_event(TOKEN + end + done) == TOKEN + end + done
