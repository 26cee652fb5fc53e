"""Token counts, text and errors of a response, from its bytes."""

import pytest

from penstock.core.routing.apis import CHAT, COMPLETIONS
from penstock.gateway.apis.response_usage import ResponseUsage, error_status


@pytest.mark.parametrize(
    ("events", "status"),
    [
        (b'data: {"error": {"message": "no", "code": 429}}\n\n', 429),
        (b'data:{"error":{"code":502}}\n\n', 502),
        (b'data: {"error": {"message": "no"}}\n\n', 500),
        (b'data: {"error": {"code": "busy"}}\n\n', 500),
        (b'event: error\ndata: {"type": "error", "error": {}}\n\n', 500),
        (b'event: response.failed\ndata: {"code": 503}\n\n', 503),
        (b'event: error\ndata: {"type": "error", "error": {"type": "timeout_error"}}\n\n', 504),
        (b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n', 503),
        (b'event: error\ndata: {"type": "error", "error": {"type": "api_error"}}\n\n', 500),
        (b'event: response.failed\ndata: {"code": "deadline_exceeded"}\n\n', 504),
        (b'event: response.failed\ndata: {"code": "server_error"}\n\n', 500),
        # A code before the error does not count.
        (b'data: {"code": 404}\n\ndata: {"error": {"code": 507}}\n\n', 507),
        (b'data: {"error": {"code": 501}}\n\nevent: response.failed\ndata: {"code": 503}\n\n', 501),
        (b'event: response.failed\ndata: {"code": 503}\n\ndata: {"error": {"code": 501}}\n\n', 503),
        (b'id: 1\rdata: {"error": {"code": 503}}\r\r', 503),
        (b'xdata: {"error": {"code": 503}}\n\nxevent: response.failed\n\n', None),
        (b'data: {"text": "data: {\\"error\\": 1}"}\n\n', None),
        (b'data: {"error": null, "choices": []}\n\n', None),
        (b'data: {"error": "full"}\r\r', 500),
        (b"", None),
    ],
)
def test_error_status_of_an_event(events, status):
    assert error_status(events) == status


@pytest.mark.parametrize(
    ("code", "has_error", "has_engine_error"),
    [
        (None, False, False),
        (400, True, False),
        (499, True, False),
        (500, True, True),
        (503, True, True),
        # About the request, as the statuses are: a client's deadline passed.
        (504, True, False),
    ],
)
def test_errors_of_a_stream(code, has_error, has_engine_error):
    count = ResponseUsage(COMPLETIONS, is_stream=True)
    assert (count.has_error, count.has_engine_error) == (False, False)
    if code is not None:
        count.feed(b'data: {"error": {"code": %d}}\n\n' % code)
    count.feed(b"data: [DONE]\n\n")
    assert (count.has_error, count.has_engine_error) == (has_error, has_engine_error)


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize(
    ("reason", "is_aborted"), [("abort", True), ("error", True), ("stop", False)]
)
def test_an_answer_that_the_engine_aborts_is_an_engine_error(is_stream, reason, is_aborted):
    """vLLM sends no error event when it shuts down before an answer is complete."""
    count = ResponseUsage(COMPLETIONS, is_stream=is_stream)
    count.feed(
        b'data: {"choices":[{"text":"\\"finish_reason\\":\\"abort\\"","finish_reason":"%s"}]}\n\n'
        % reason.encode()
    )
    assert (count.has_error, count.has_engine_error) == (is_aborted, is_aborted)


def test_complete_response_has_no_error_events():
    count = ResponseUsage(COMPLETIONS, is_stream=False)
    count.feed(b'data: {"error": {"code": 500}}\n\n')
    assert (count.has_error, count.has_engine_error) == (False, False)


@pytest.mark.parametrize(
    ("num_bytes", "tokens"), [((), 1), ((3,), 1), ((7,), 1), ((8,), 2), ((5, 7), 3)]
)
def test_tokens_of_a_complete_response_are_estimated_from_bytes(num_bytes, tokens):
    count = ResponseUsage(COMPLETIONS, is_stream=False)
    for number in num_bytes:
        count.feed(b"x" * number)
    assert count.output_tokens == tokens


@pytest.mark.parametrize(
    ("api", "events", "tokens"),
    [(COMPLETIONS, 0, 1), (COMPLETIONS, 1, 1), (COMPLETIONS, 2, 1), (COMPLETIONS, 3, 2),
     (CHAT, 2, 1), (CHAT, 3, 1), (CHAT, 4, 2)],
)  # fmt: skip
def test_tokens_of_a_stream_are_its_events_without_the_overhead(api, events, tokens):
    count = ResponseUsage(api, is_stream=True)
    for number in range(events):
        count.feed(b"data: {}\n\n" if number % 2 else b"data: {}\r\n\r\n")
    assert count.output_tokens == tokens


@pytest.mark.parametrize("is_stream", [True, False])
def test_last_usage_counts(is_stream):
    count = ResponseUsage(COMPLETIONS, is_stream=is_stream)
    assert (count.prompt_tokens, count.cached_tokens) == (None, 0)
    count.feed(b'"prompt_tokens": 1, "completion_tokens": 2, "cached_tokens": 3\n\n')
    count.feed(
        b'"prompt_tokens": 4, "completion_tokens": 5, "cached_tokens": 6,'
        b'"prompt_tokens": 7, "completion_tokens": 8, "cached_tokens": 9\n\n'
    )
    assert (count.prompt_tokens, count.output_tokens, count.cached_tokens) == (7, 8, 9)
    count.feed(b'"prompt_tokens": 99, "cached_tokens": 99\n\n')  # says no tokens of its own
    assert (count.prompt_tokens, count.output_tokens, count.cached_tokens) == (7, 8, 9)
    count.feed(b'"completion_tokens": 0')
    assert (count.prompt_tokens, count.output_tokens, count.cached_tokens) == (7, 0, 9)


def test_usage_without_numbers_is_ignored():
    count = ResponseUsage(COMPLETIONS, is_stream=False)
    count.feed(b'"prompt_tokens": null, "completion_tokens": null, "cached_tokens": null')
    assert (count.prompt_tokens, count.output_tokens, count.cached_tokens) == (None, 17, 0)


@pytest.mark.parametrize(
    ("chunk", "has_text"),
    [
        (b'{"content": "a"}', True),
        (b'{"content": ""}', False),
        (b'{"content": "\\n"}', False),
        (b'{"content": " \\n\\t \\r"}', False),
        (b'{"content": " \\n\\"\\n"}', True),
        (b'{"reasoning_content":"a"}', True),
        (b'{"tool_calls": [{"id": 1}]}', True),
        (b'{"tool_calls": []}', False),
    ],
)
def test_has_text(chunk, has_text):
    count = ResponseUsage(COMPLETIONS, is_stream=True)
    assert not count.has_text
    count.feed(chunk)
    assert count.has_text == has_text
    count.feed(b'{"content": ""}')
    assert count.has_text == has_text
