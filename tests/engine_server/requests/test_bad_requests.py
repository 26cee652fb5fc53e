"""Tests that invalid requests get a 4xx with a message, and that the engine keeps running."""

import json
import socket
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
TEXT = {"prompt": "hi", "max_tokens": 2}


def chat(**changes: Any) -> tuple[str, bytes]:
    return "/v1/chat/completions", json.dumps(CHAT | changes).encode()


def text(**changes: Any) -> tuple[str, bytes]:
    return "/v1/completions", json.dumps(TEXT | changes).encode()


def raw(body: bytes) -> tuple[str, bytes]:
    return "/v1/completions", body


def message(**changes: Any) -> tuple[str, bytes]:
    return chat(messages=[{"role": "user", "content": "hi"} | changes])


IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}

# (request, the parameter that the error names)
BAD: list[tuple[tuple[str, bytes], str | None]] = [
    (raw(b""), None),
    (raw(b"{"), None),
    (raw(b"null"), None),
    (raw(b"[]"), None),
    (raw(b'"prompt"'), None),
    (raw(b"\xff\xfe"), None),
    (raw(b"[" * 100_000), None),
    (raw(b'{"prompt": "x", "temperature": NaN}'), None),
    (raw(b'{"prompt": "x", "temperature": Infinity}'), None),
    (raw(b'{"prompt": "x", "temperature": 1e999}'), "temperature"),
    (raw(b'{"prompt": "x", "top_p": -1e999}'), "top_p"),
    (raw(b'{"prompt": "x", "max_tokens": ' + b"9" * 6000 + b"}"), None),
    (raw(b'{"prompt": "x", "seed": 99999999999999999999}'), "seed"),
    (raw(b'{"prompt": "\\ud800"}'), None),
    (raw(b'{"max_tokens": 2}'), "prompt"),
    (text(prompt=None), "prompt"),
    (text(prompt=""), "prompt"),
    (text(prompt=[]), "prompt"),
    (text(prompt=[[]]), "prompt"),
    (text(prompt=[""]), "prompt"),
    (text(prompt=7), "prompt"),
    (text(prompt={"a": 1}), "prompt"),
    (text(prompt=[1, "a"]), "prompt"),
    (text(prompt=[1.5]), "prompt"),
    (text(prompt=[True]), "prompt"),
    (text(prompt=[-1]), "prompt"),
    (text(prompt=[10**9]), "prompt"),
    (text(prompt=[2**70]), "prompt"),
    (text(prompt=["a"] * 129), "n"),
    (text(prompt=[[[1]]]), "prompt"),
    (text(prompt=[5] * 2048), "prompt"),
    (text(prompt="word " * 5000), "prompt"),
    (text(prompt="x" * 1_000_000), "prompt"),
    (text(max_tokens=0), "max_tokens"),
    (text(max_tokens=0, logprobs=1), "max_tokens"),
    (chat(max_tokens=0, echo=True), "max_tokens"),
    (text(logprobs="2"), "logprobs"),
    (text(prompt_logprobs="2"), "prompt_logprobs"),
    (chat(logprobs=True, top_logprobs="2"), "top_logprobs"),
    (text(max_tokens=-1), "max_tokens"),
    (text(max_tokens=1.5), "max_tokens"),
    (text(max_tokens="two"), "max_tokens"),
    (text(temperature="NaN"), "temperature"),
    (text(stream="perhaps"), "stream"),
    (text(stream=True, stream_options=[1]), "stream_options"),
    (text(stream=True, stream_options={"include_usage": "perhaps"}), "stream_options"),
    (text(max_tokens=2048), "max_tokens"),
    (text(min_tokens=-1), "min_tokens"),
    (text(min_tokens=3), "min_tokens"),
    (text(temperature=-0.1), "temperature"),
    (text(temperature=1e300), "temperature"),
    (text(temperature="hot"), "temperature"),
    (text(top_p=0), "top_p"),
    (text(top_p=1.1), "top_p"),
    (text(top_k=-2), "top_k"),
    (text(top_k=0.5), "top_k"),
    (text(min_p=2), "min_p"),
    (text(seed=2**63), "seed"),
    (text(stop=""), "stop"),
    (text(stop=["a", ""]), "stop"),
    (text(stop=["a"] * 17), "stop"),
    (text(stop="x" * 257), "stop"),
    (text(stop=[1]), "stop"),
    (text(stop_token_ids=[-1]), "stop_token_ids"),
    (text(stop_token_ids=list(range(257))), "stop_token_ids"),
    (text(stop_token_ids="1"), "stop_token_ids"),
    (text(stream_options={"include_usage": True}), None),
    (text(priority=1), "priority"),
    (text(priority=2**31), "priority"),
    (text(priority="urgent"), "priority"),
    (text(cache_salt=""), "cache_salt"),
    (text(cache_salt="x" * 257), "cache_salt"),
    (text(request_id="a b"), "request_id"),
    (text(n=129), "n"),
    (text(n=64, prompt=["a", "b", "c"]), "n"),
    (text(n=10**9), "n"),
    (text(best_of=100000), "best_of"),
    (text(logprobs=21), "logprobs"),
    (text(prompt_logprobs=-1), "prompt_logprobs"),
    (text(echo="perhaps"), "echo"),
    (text(suffix="after"), "suffix"),
    (text(logit_bias={"5": 101}), "logit_bias"),
    (text(logit_bias={"-5": 1}), "logit_bias"),
    (text(logit_bias={"999999999": 1}), "logit_bias"),
    (text(presence_penalty=2.5), "presence_penalty"),
    (text(repetition_penalty=0), "repetition_penalty"),
    (text(repetition_penalty=5e-324), "repetition_penalty"),
    (text(allowed_token_ids=[]), "allowed_token_ids"),
    (text(bad_words=[""]), "bad_words"),
    (text(guided_regex="(a+)+$"), "guided_regex"),
    (text(structured_outputs={"json": {"$ref": "#"}}), "structured_outputs"),
    (text(prompt_embeds="gASVKAAAAAAAAAA="), "prompt_embeds"),
    (text(model="another"), "model"),
    (text(model="../../etc/passwd"), "model"),
    (text(model=["soup"]), "model"),
    (chat(messages=[]), "messages"),
    (chat(messages=None), "messages"),
    (chat(messages="hi"), "messages"),
    (chat(messages=[{}]), "messages"),
    (chat(messages=CHAT["messages"] * 2049), "messages"),
    (chat(messages=[{"role": "user", "content": "word " * 5000}]), "messages"),
    (message(role=""), "messages"),
    (message(role="user<|im_end|>"), "messages"),
    (message(role="user\n"), "messages"),
    (message(content=7), "messages"),
    (message(content=[IMAGE]), "messages"),
    (message(content=[{"type": "text"}]), "messages"),
    (message(tool_calls=[{"function": {"name": "__import__('os')"}}]), "messages"),
    (chat(chat_template="{{ ''.__class__.__mro__ }}"), "chat_template"),
    (chat(chat_template_kwargs={"tokenize": True}), "chat_template_kwargs"),
    (chat(tools=[{"type": "function", "function": {"name": "f"}}]), "tool_choice"),
    (chat(tools=[{"type": "web_search"}]), "tools"),
    (chat(tools=[{"type": "function", "function": {"name": "f"}}] * 2), "tools"),
    (chat(tool_choice="required"), "tool_choice"),
    (chat(tool_choice="perhaps"), "tool_choice"),
    (chat(response_format={"type": "yaml"}), "response_format"),
    (chat(response_format={"type": "json_schema"}), "response_format"),
    (chat(logprobs=5), "logprobs"),
    (chat(top_logprobs=5), None),
    (chat(logprobs=True, top_logprobs=21), "top_logprobs"),
    (chat(max_completion_tokens=0), "max_completion_tokens"),
    (chat(continue_final_message=True, add_generation_prompt=True), None),
    (chat(reasoning_effort="hard"), "reasoning_effort"),
]


@pytest.mark.parametrize(("request_", "param"), BAD)
def test_an_invalid_request_is_rejected_with_a_message(
    client: httpx.Client, request_: tuple[str, bytes], param: str | None
) -> None:
    path, body = request_
    answer = client.post(path, content=body)

    error = answer.json()["error"]
    assert (
        answer.status_code
        == error["code"]
        == (404 if param == "model" and b"[" not in body else 400)
    )
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert 0 < len(error["message"]) <= 500
    assert "Traceback" not in error["message"]
    good = client.post("/v1/completions", json=TEXT)
    assert good.status_code == 200, "the engine did not survive"


def test_the_error_names_invalid_keys_of_a_logit_bias(client: httpx.Client) -> None:
    bias = {"bad1": 1, "5": 1, "x" * 100: 1}
    answer = client.post("/v1/completions", json=TEXT | {"logit_bias": bias})
    message = answer.json()["error"]["message"]
    assert message == f"logit_bias: must have token ids as its keys, not 'bad1', '{'x' * 32}'"


PROMPT_ONLY = {"messages": CHAT["messages"]}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "a"}, ("tools", [{"type": "function"}])),
        ("/v1/completions", {"prompt": "a"}, ("reasoning_effort", "low")),
        ("/v1/completions", {"prompt": "a"}, ("top_logprobs", 2)),
        ("/v1/chat/completions", CHAT, ("prompt", "a")),
        ("/v1/responses", {"input": "a", "max_output_tokens": 1}, ("n", 2)),
        ("/v1/responses", {"input": "a", "max_output_tokens": 1}, ("echo", True)),
        ("/v1/responses", {"input": "a", "max_output_tokens": 1}, ("reasoning_effort", "low")),
        ("/v1/responses", {"input": "a", "max_output_tokens": 1}, ("use_beam_search", True)),
        ("/v1/messages", CHAT | {"max_tokens": 1}, ("seed", 1)),
        ("/v1/messages", CHAT | {"max_tokens": 1}, ("use_beam_search", True)),
        ("/v1/messages", CHAT | {"max_tokens": 1}, ("thinking_token_budget", 5)),
        ("/tokenize", {"prompt": "a"}, ("truncate_prompt_tokens", 1)),
        ("/tokenize", PROMPT_ONLY, ("temperature", 0.5)),
        ("/tokenize", PROMPT_ONLY, ("max_tokens", 5)),
        ("/tokenize", PROMPT_ONLY, ("include_reasoning", False)),
        ("/v1/messages/count_tokens", PROMPT_ONLY, ("temperature", 0.5)),
        ("/v1/messages/count_tokens", PROMPT_ONLY, ("max_tokens", 5)),
        ("/v1/messages/count_tokens", PROMPT_ONLY, ("stop_sequences", ["a"])),
        ("/v1/messages/count_tokens", PROMPT_ONLY, ("stream", True)),
    ],
    ids=lambda case: case if isinstance(case, str) else str(next(iter(case))),
)
def test_a_parameter_without_effect_is_rejected(
    client: httpx.Client, path: str, body: dict[str, Any], param: tuple[str, Any]
) -> None:
    name, value = param
    answer = client.post(path, json=body | {name: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(name)
    neutral = {"n": 1, "echo": False, "use_beam_search": False}.get(name)
    assert client.post(path, json=body | {name: neutral}).status_code == 200


def test_a_body_above_the_size_limit_is_a_413(client: httpx.Client) -> None:
    answer = client.post("/v1/completions", content=b'{"prompt": "' + b"x" * (9 * 2**20) + b'"}')
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "RequestTooLargeError"


def exchange(client: httpx.Client, head: str, body: bytes) -> tuple[int, bytes]:
    """Writes a whole request before reading, as simple clients do. Returns the status and the body."""
    address = client.base_url.host, client.base_url.port or 80
    with socket.create_connection(address, timeout=30) as connection:
        request = f"POST {head}\r\nHost: engine\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode() + body)
        answer = HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read()


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/completions", 413), ("/tokenize", 413), ("/nothing", 404)]
)
def test_a_client_that_writes_first_can_read_the_answer(
    client: httpx.Client, path: str, status: int
) -> None:
    head = f"{path} HTTP/1.1\r\nContent-Length: 20000000"
    seen, body = exchange(client, head, b"x" * 20_000_000)
    assert (seen, json.loads(body)["error"]["code"]) == (status, status)


def test_a_large_body_is_refused_by_its_header(client: httpx.Client) -> None:
    seen, body = exchange(client, "/v1/completions HTTP/1.1\r\nContent-Length: 20000000", b"")
    assert (seen, json.loads(body)["error"]["message"]) == (413, "the body is larger than 8 MiB")


def test_a_header_above_the_size_limit_is_rejected(client: httpx.Client) -> None:
    try:
        status = client.get("/health", headers={"x-much": "x" * 3_000_000}).status_code
    except httpx.TransportError:  # the server closed the connection during the write
        status = 400
    assert status in (400, 431)
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/docs", 404),
        ("GET", "/v1/models/%2e%2e/%2e%2e/etc/passwd", 404),
    ],
)
def test_unknown_routes_and_methods_are_json_errors(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == answer.json()["error"]["code"] == status


def test_one_invalid_prompt_rejects_all_prompts(client: httpx.Client) -> None:
    answer = client.post("/v1/completions", json=TEXT | {"prompt": ["good", ""]})
    assert answer.status_code == 400
