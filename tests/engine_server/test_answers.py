"""What clients get: whole and streamed answers, stops, seeds, cancellation, drain, refusals."""

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine_server.conftest import Engine, start, stop

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "The gateway?"}]}


def streamed(engine: Engine, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with httpx.stream("POST", f"{engine.url}{path}", json=body | {"stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_stream_says_what_the_whole_answer_says(engine: Engine) -> None:
    body = {**CHAT, "max_tokens": 24, "temperature": 0}
    whole = httpx.post(f"{engine.url}/v1/chat/completions", json=body).json()
    events = streamed(
        engine, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}
    )
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    reasons = [e["choices"][0]["finish_reason"] for e in events if e["choices"]]
    assert reasons[-1] == whole["choices"][0]["finish_reason"]
    assert set(reasons[:-1]) == {None}


def test_a_seed_gives_the_same_text_alone_and_in_company(engine: Engine) -> None:
    body = {"prompt": "Penstock", "max_tokens": 20, "seed": 7, "temperature": 1.2}
    alone = httpx.post(f"{engine.url}/v1/completions", json=body).json()["choices"][0]["text"]
    answers: list[str] = []

    def ask(seed: int) -> None:
        reply = httpx.post(f"{engine.url}/v1/completions", json=body | {"seed": seed})
        if seed == 7:
            answers.append(reply.json()["choices"][0]["text"])

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in (1, 2, 7, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [alone]


def test_a_stop_string_that_spans_tokens_ends_the_text_before_it(engine: Engine) -> None:
    body = {"prompt": "The", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    text = httpx.post(f"{engine.url}/v1/completions", json=body).json()["choices"][0]["text"]
    stop_at = text[8:14]
    cut = httpx.post(f"{engine.url}/v1/completions", json=body | {"stop": stop_at}).json()
    assert cut["choices"][0]["text"] == text[: text.find(stop_at)]
    assert cut["choices"][0]["finish_reason"] == "stop"
    events = streamed(engine, "/v1/completions", body | {"stop": [stop_at]})
    assert "".join(e["choices"][0]["text"] for e in events) == cut["choices"][0]["text"]
    engine.settle()


def test_many_prompts_are_many_choices(engine: Engine) -> None:
    body = {"prompt": ["One", "Two", "Three"], "max_tokens": 3}
    answer = httpx.post(f"{engine.url}/v1/completions", json=body).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_client_that_leaves_frees_its_blocks(engine: Engine, path: str, stream: bool) -> None:
    aborted = engine.metric("vllm:request_success_total", finished_reason="abort")
    body = CHAT if "chat" in path else {"prompt": "On and on"}
    body = {**body, "max_tokens": 1900, "ignore_eos": True, "stream": stream}
    url = f"{engine.url}{path}"
    if stream:
        with httpx.stream("POST", url, json=body) as answer:
            next(answer.iter_lines())
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=body, timeout=httpx.Timeout(5, read=0.4))
    engine.settle()
    assert engine.metric("vllm:request_success_total", finished_reason="abort") - aborted == 1


BAD_BODIES: list[tuple[Any, int]] = [
    ({}, 400),
    ([], 400),
    ("text", 400),
    ({"prompt": ""}, 400),
    ({"prompt": []}, 400),
    ({"prompt": [[]]}, 400),
    ({"prompt": [-1]}, 400),
    ({"prompt": [10**9]}, 400),
    ({"prompt": {"a": 1}}, 400),
    ({"prompt": None}, 400),
    ({"prompt": "x", "max_tokens": 0}, 400),
    ({"prompt": "x", "max_tokens": -1}, 400),
    ({"prompt": "x", "max_tokens": "many"}, 400),
    ({"prompt": "x", "max_tokens": 1e9}, 400),
    ({"prompt": "x", "max_tokens": 2048}, 400),
    ({"prompt": [3] * 3000}, 400),
    ({"prompt": "x", "temperature": -1}, 400),
    ({"prompt": "x", "temperature": "hot"}, 400),
    ({"prompt": "x", "top_p": 0}, 400),
    ({"prompt": "x", "top_p": 1.5}, 400),
    ({"prompt": "x", "top_k": -5}, 400),
    ({"prompt": "x", "min_p": 2}, 400),
    ({"prompt": "x", "seed": 2**70}, 400),
    ({"prompt": "x", "seed": "s"}, 400),
    ({"prompt": "x", "stop": [""]}, 400),
    ({"prompt": "x", "stop": ["s"] * 100}, 400),
    ({"prompt": "x", "stop": ["s" * 1000]}, 400),
    ({"prompt": "x", "stop": 3}, 400),
    ({"prompt": "x", "stop_token_ids": [-1]}, 400),
    ({"prompt": "x", "stop_token_ids": "a"}, 400),
    ({"prompt": "x", "n": 2}, 400),
    ({"prompt": "x", "n": 10**9}, 400),
    ({"prompt": "x", "best_of": 3}, 400),
    ({"prompt": "x", "logprobs": 5}, 400),
    ({"prompt": "x", "echo": True}, 400),
    ({"prompt": "x", "suffix": "y"}, 400),
    ({"prompt": "x", "logit_bias": {"1": 5}}, 400),
    ({"prompt": "x", "presence_penalty": 0.5}, 400),
    ({"prompt": "x", "response_format": {"type": "json_object"}}, 400),
    ({"prompt": "x", "stream_options": {"include_usage": True}}, 400),
    ({"prompt": "x", "stream": "perhaps"}, 400),
    ({"prompt": "x", "min_tokens": -1}, 400),
    ({"prompt": "x", "cache_salt": "s" * 1000}, 400),
    ({"prompt": ["x"] * 1000}, 400),
    ({"prompt": "x", "model": "another"}, 404),
    ({"prompt": "x", "model": 3}, 400),
]
BAD_CHATS: list[Any] = [
    {},
    {"messages": []},
    {"messages": "hello"},
    {"messages": [{}]},
    {"messages": [{"role": ""}]},
    {"messages": [{"role": "user", "content": 3}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
    {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]},
    {"messages": [{"role": "user", "content": "x"}], "chat_template": "{{ 1 }}"},
    {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 0},
    {"messages": [{"role": "user", "content": "x"}] * 5000},
    {"messages": [{"role": "user", "content": "word " * 9000}]},
]
RAW = [b"", b"{", b"\xff\xfe", b'{"prompt": NaN}', b"[" * 100_000, b'{"prompt": "\\ud800"', b"null"]


def test_bad_requests_are_refused_by_name_and_harm_nobody(engine: Engine) -> None:
    url = f"{engine.url}/v1/completions"
    with httpx.Client() as client:
        for body, status in BAD_BODIES:
            answer = client.post(url, json=body)
            assert answer.status_code == status, (body, answer.text)
            error = answer.json()["error"]
            assert error["message"]
            assert "/" not in error["message"], "no paths in messages"
        for body in BAD_CHATS:
            answer = client.post(f"{engine.url}/v1/chat/completions", json=body)
            assert answer.status_code == 400, (body, answer.text)
        for raw in RAW:
            assert client.post(url, content=raw).status_code == 400
        assert client.post(url, content=b"x" * (17 << 20)).status_code == 413
        assert client.get(url).status_code == 405
        assert client.post(f"{engine.url}/v1/nothing").status_code == 404
        infinite = b'{"prompt": "x", "temperature": 1e999}'
        assert client.post(url, content=infinite).status_code == 400
        good = client.post(url, json={"prompt": "x", "max_tokens": 1})
    print(f"{len(BAD_BODIES) + len(BAD_CHATS) + len(RAW) + 4} bad requests refused")
    assert good.status_code == 200
    assert engine.process.poll() is None
    engine.settle()


def test_the_request_log_has_numbers_and_no_text(engine: Engine) -> None:
    body = {"prompt": "a very secret prompt", "max_tokens": 2}
    headers = {"X-Request-Id": "test-log-1"}
    answer = httpx.post(f"{engine.url}/v1/completions", json=body, headers=headers)
    assert answer.headers["x-request-id"] == "test-log-1"
    line = next(x for x in engine.lines() if x["request_id"] == "test-log-1")
    assert line["completion_tokens"] == 2
    assert line["finish_reason"] == "length"
    assert "secret" not in engine.log.read_text()


def test_a_drain_finishes_what_runs_and_refuses_what_comes(model_dir: Path, tmp_path: Path) -> None:
    engine = start(model_dir, tmp_path / "log", "--api-key", "k3y", "--shutdown-timeout", "30")
    key = {"Authorization": "Bearer k3y"}
    assert httpx.get(f"{engine.url}/v1/models").status_code == 401
    assert (
        httpx.get(f"{engine.url}/v1/models", headers={"Authorization": "Bearer no"}).status_code
        == 401
    )
    assert httpx.get(f"{engine.url}/v1/models", headers=key).status_code == 200
    assert httpx.get(f"{engine.url}/health").status_code == 200
    body = {"prompt": "On", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    url = f"{engine.url}/v1/completions"
    with httpx.stream("POST", url, json=body, headers=key, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        engine.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 5
        while httpx.get(f"{engine.url}/ready").status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        refused = httpx.post(url, json={"prompt": "x"}, headers=key)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert [line for line in lines if line][-1] == "data: [DONE]"
    assert engine.process.wait(20) == 0
    assert engine.lines()[-1]["completion_tokens"] == 1500


def test_a_drain_that_takes_too_long_ends_with_an_error_event(
    model_dir: Path, tmp_path: Path
) -> None:
    engine = start(model_dir, tmp_path / "log", "--shutdown-timeout", "0.2")
    body = {"prompt": "On", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{engine.url}/v1/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert stop(engine) == 0
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert "error" in json.loads(rest[-2].removeprefix("data: "))
