"""Prompts and token counts of each API, as the gateway reads them from bodies."""

import json

import pytest

from penstock.core.routing.apis import APIS, BACKGROUND, CHAT, COMPLETIONS, EMBEDDINGS, INVOCATIONS
from penstock.gateway.apis.request import parse
from penstock.gateway.apis.response_usage import ResponseUsage

BY_PATH = {api.path: api for api in APIS}
CALL = {"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"}
IMAGE = {"type": "input_image", "image_url": "x" * 99}
TOOL_USE = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": "bc"}}


def read(path, **fields):
    return parse(json.dumps({"model": "chat"} | fields).encode(), BY_PATH[path])


def user(content):
    return [{"role": "user", "content": content}]


PROMPTS = [
    # path, fields, bytes of text, whether it is text alone, tokens in the KV cache
    ("/v1/responses", {"input": "abcd", "instructions": "ef"}, 6, True, 257),
    ("/v1/responses", {"input": user("abcd"), "tools": [{"name": "add"}]}, 4 + 7, True, 258),
    ("/v1/responses", {"input": user([{"type": "input_text", "text": "abcd"}])}, 4, True, 257),
    ("/v1/responses", {"input": user([IMAGE])}, 0, False, 256),
    ("/v1/responses", {"input": [CALL, {"type": "function_call_output", "output": "ab"}]}, 4, True, 257),
    ("/v1/responses", {"input": [{"output": [IMAGE]}]}, 0, False, 256),
    ("/v1/responses", {"input": "abcd", "background": False}, 4, True, 257),
    ("/v1/responses", {"input": "abcd", "background": True}, 4, True, 1),
    ("/v1/messages", {"messages": user("abc"), "system": "de"}, 5, True, 257),
    ("/v1/messages", {"messages": user([{"type": "text", "text": "abc"}])}, 3, True, 256),
    ("/v1/messages", {"messages": user("abc"), "system": [{"text": "de"}]}, 5, True, 257),
    ("/v1/messages", {"messages": [{"role": "assistant", "content": [TOOL_USE]}]}, 3, True, 256),
    ("/v1/messages", {"messages": user([{"type": "tool_result", "content": "abcd"}])}, 4, True, 257),
    (
        "/v1/messages",
        {"messages": user([{"type": "tool_result", "content": [{"type": "text", "text": "ab"}]}])},
        2, True, 256,
    ),
    (
        "/v1/messages",
        {"messages": user([{"type": "tool_result", "content": [{"type": "image"}]}])},
        0, False, 256,
    ),
    ("/v1/messages", {"messages": user([{"type": "thinking", "thinking": "abc"}])}, 3, True, 256),
    ("/v1/messages", {"messages": user([{"type": "image", "source": {}}])}, 0, False, 256),
    ("/v1/messages", {"messages": user("abc"), "tools": [{"name": "add"}]}, 3 + 7, True, 258),
    ("/v1/messages", {"system": "abc"}, 0, True, 256),
    ("/v1/messages/count_tokens", {"messages": user("abc")}, 0, True, 0),
    ("/v1/chat/completions/batch", {"messages": [user("abc"), user("de")]}, 5, True, 257),
    ("/v1/chat/completions/batch", {"messages": [user([{"type": "image_url"}])]}, 0, False, 256),
    ("/v1/embeddings", {"input": ["abcd", "efgh"]}, 8, True, 2),
    ("/v1/embeddings", {"input": [[1, 2], [3]], "stream": True}, 12, True, 3),
    ("/v1/embeddings", {"messages": user("abcd")}, 4, True, 1),
    ("/pooling", {"input": "abcd"}, 4, True, 1),
    ("/classify", {"input": "abcd"}, 4, True, 1),
    ("/v2/embed", {"texts": ["abcd"]}, 4, True, 1),
    ("/v2/embed", {"inputs": [{"content": [{"type": "text", "text": "abcd"}]}]}, 4, True, 1),
    ("/score", {"text_1": "ab", "text_2": ["cd", "efgh"]}, 8, True, 2),
    ("/v1/score", {"queries": "ab", "documents": [{"text": "cd"}]}, 4, True, 1),
    ("/v1/score", {"data_1": "ab", "data_2": {"content": [IMAGE]}}, 2, False, 0),
    ("/v1/score", {"data_1": {"content": "abc"}, "data_2": ["d"]}, 4, True, 1),
    ("/rerank", {"query": "ab", "documents": ["cd", {"text": "ef"}]}, 6, True, 1),
    ("/v1/rerank", {"query": "ab", "documents": ["cd", {"image": "x"}]}, 4, False, 1),
    ("/v2/rerank", {"query": 7, "documents": "no"}, 0, True, 0),
    ("/tokenize", {"prompt": "abcd"}, 0, True, 0),
    ("/detokenize", {"tokens": [1, 2]}, 0, True, 0),
    ("/invocations", {"messages": user("abcd")}, 4, True, 257),
    ("/invocations", {"prompt": "abcd"}, 4, True, 257),
    ("/invocations", {"input": "abcd"}, 4, True, 1),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "num_bytes", "is_text_only", "tokens"), PROMPTS)
def test_prompt(path, fields, num_bytes, is_text_only, tokens):
    request = read(path, **fields)
    assert (request.prompt_bytes, request.is_text_only, request.tokens) == (
        num_bytes,
        is_text_only,
        tokens,
    )


@pytest.mark.parametrize(
    ("path", "first", "later", "other"),
    [
        (
            "/v1/responses",
            {"input": "abc"},
            {"input": [*user("abc"), {"role": "assistant", "content": "d"}, *user("e")]},
            {"input": "abd"},
        ),
        (
            "/v1/messages",
            {"messages": user("abc")},
            {"messages": [*user("abc"), {"role": "assistant", "content": "d"}, *user("e")]},
            {"messages": user("abd")},
        ),
        (
            "/v1/chat/completions/batch",
            {"messages": [user("abc"), user("d")]},
            {"messages": [user("abc"), user("e")]},
            {"messages": [user("d"), user("abc")]},
        ),
        (
            "/v1/rerank",
            {"query": "abc", "documents": ["d"]},
            {"query": "abc", "documents": ["e"]},
            {"query": {"text": "abd"}, "documents": ["d"]},
        ),
    ],
)
def test_turns_of_a_conversation_have_the_same_key(path, first, later, other):
    keys = [read(path, **each).attributes.conversation_key for each in (first, later, other)]
    assert None not in keys
    assert keys[0] == keys[1] != keys[2]


def test_only_an_api_that_generates_streams():
    streamed = {path for path in BY_PATH if read(path, stream=True).is_stream}
    assert streamed == {
        "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/batch", "/v1/responses",
        "/v1/messages", "/invocations",
    }  # fmt: skip


def test_a_response_in_the_background_has_no_usage_and_is_not_empty():
    request = read("/v1/responses", input="abc", background=True, stream=True)
    assert (request.api is BACKGROUND, request.is_stream) == (True, False)
    usage = ResponseUsage(request.api, is_stream=False)
    usage.feed(b'{"status": "queued", "output": [], "usage": null}')
    assert (usage.prompt_tokens, usage.generated_tokens, usage.is_empty) == (None, None, False)


@pytest.mark.parametrize(
    ("fields", "previous"),
    [
        ({"previous_response_id": "resp_1"}, "resp_1"),
        ({"previous_response_id": None}, ""),
        ({}, ""),
    ],
)
def test_previous_response_is_read_where_responses_are_stored(fields, previous):
    assert read("/v1/responses", **fields).previous_response == previous
    assert read("/v1/responses", background=True, **fields).previous_response == previous
    assert read("/v1/chat/completions", **fields).previous_response == ""


def test_only_streams_of_openais_older_apis_have_an_event_of_usage_to_hide():
    """Other APIs have the usage in an event that every client gets."""
    hiding = {path for path in BY_PATH if read(path, stream=True).hides_usage}
    assert hiding == {
        "/v1/chat/completions", "/v1/completions", "/v1/chat/completions/batch", "/invocations",
    }  # fmt: skip
    options = {"include_usage": True}
    assert not read("/v1/completions", stream=True, stream_options=options).hides_usage


@pytest.mark.parametrize(
    ("fields", "api"),
    [
        ({"messages": user("abc"), "input": "d"}, CHAT),
        ({"prompt": "abc"}, COMPLETIONS),
        ({"input": "abc"}, EMBEDDINGS),
        ({}, INVOCATIONS),
    ],
)
def test_an_invocation_counts_as_the_api_of_its_fields(fields, api):
    assert read("/invocations", **fields).api is api


USAGE = [
    # path, end of the response, prompt tokens, cached tokens, output tokens
    (
        "/v1/responses",
        b'{"usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 7},'
        b' "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 15}}',
        10, 7, 5,
    ),
    (
        "/v1/messages",
        b'{"usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 7}}',
        10, 7, 5,
    ),
    ("/v1/messages", b'{"usage": {"input_tokens": 3, "output_tokens": 5}}', 3, 0, 5),
    ("/v1/messages/count_tokens", b'{"input_tokens": 30}', None, None, 0),
    ("/v1/embeddings", b'{"usage": {"prompt_tokens": 4, "total_tokens": 4}}', 4, None, 0),
    ("/v2/embed", b'{"meta": {"billed_units": {"input_tokens": 6}}}', 6, None, 0),
    ("/v1/rerank", b'{"usage": {"total_tokens": 9}}', 9, None, 0),
    ("/tokenize", b'{"count": 3, "tokens": [1, 2, 3]}', None, None, 0),
    (
        "/v1/chat/completions/batch",
        b'{"usage": {"prompt_tokens": 4, "total_tokens": 6, "completion_tokens": 2}}',
        4, 0, 2,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "prompt", "cached", "output"), USAGE)
def test_usage(path, body, prompt, cached, output):
    usage = ResponseUsage(BY_PATH[path], is_stream=False)
    usage.feed(body)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (
        prompt,
        cached,
        output,
    )


def test_usage_at_the_end_of_a_streamed_message_counts():
    """The first event has the size of the whole prompt, the last one that of its uncached part."""
    usage = ResponseUsage(BY_PATH["/v1/messages"], is_stream=True)
    usage.feed(b'data: {"usage": {"input_tokens": 10, "output_tokens": 1}}\n\n')
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (10, 0, 1)
    usage.feed(
        b'data: {"usage": {"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 7}}\n\n'
    )
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (10, 7, 5)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"type": "tool_use", "input": {}}',
        b'{"delta": {"type": "thinking_delta", "thinking": "a"}}',
        b'{"delta": {"type": "input_json_delta", "partial_json": "{"}}',
        b'{"type":"function_call","arguments":""}',
    ],
)
def test_a_call_or_a_thought_is_no_empty_answer(answer):
    usage = ResponseUsage(BY_PATH["/v1/messages"], is_stream=True)
    usage.feed(b'{"content": [], "text": ""}')
    assert usage.is_empty
    usage.feed(answer)
    assert not usage.is_empty
