"""Tests that the event loop is free while the body of a large answer is built."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from penstock_engine.core.step import SequenceOutput, Step, TokenLogprobs
from penstock_engine.server.answers.answer import frame
from penstock_engine.server.requests.bodies import read_object
from penstock_engine.server.routes.responses import answer as responses
from penstock_engine.server.routes.responses.answer import ResponsesDialect
from penstock_engine.text.tokens import Tokenizer

TIMEOUT_S = 30
MESSAGES = [{"role": "user", "content": "x"}]


def logprobs_of(token_id: int) -> TokenLogprobs:
    return TokenLogprobs(token_id, -0.5, 1, ((token_id, -0.5), (6, -1.0)))


class LogprobsRunner:
    """A runner that samples token 5, with log-probabilities if requested."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        results = {}
        for s in step.sequences:
            prompt = list(s.history[s.start + 1 : min(s.end + 1, s.num_prompt_tokens)])
            logprobs = () if s.sampling.logprobs is None else (logprobs_of(5),)
            has_prompt = s.sampling.prompt_logprobs is not None
            results[s.request_id] = SequenceOutput(
                (5,) if s.is_sampled else (),
                logprobs=logprobs if s.is_sampled else (),
                prompt_logprobs=tuple(map(logprobs_of, prompt)) if has_prompt else (),
            )
        return results


class BlockedTokenizer(Tokenizer):
    """A tokenizer that reads no token of log-probabilities until `may_run` is set."""

    def __init__(self, model_dir: Path) -> None:
        super().__init__(model_dir)
        self.is_blocked, self.may_run = threading.Event(), threading.Event()
        self.read: Counter[int] = Counter()

    def token_bytes(self, token_id: int) -> bytes:
        self.is_blocked.set()
        assert self.may_run.wait(TIMEOUT_S), "nobody was served meanwhile"
        self.read[token_id] += 1
        return super().token_bytes(token_id)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": [7] * 40, "logprobs": 2}),
        ("/v1/completions", {"prompt": [7] * 40, "logprobs": 2, "echo": True}),
        ("/v1/completions", {"prompt": [7] * 40, "logprobs": 2, "echo": True, "stream": True}),
        ("/v1/completions", {"prompt": [[7] * 40] * 3, "prompt_logprobs": 2}),
        ("/v1/chat/completions", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", {"messages": MESSAGES, "prompt_logprobs": 2}),
    ],
    ids=["completion", "echo", "streamed-echo", "prompt", "chat", "chat-prompt"],
)
async def test_health_is_answered_while_logprobs_are_encoded(
    serve_runner: Any, model_dir: Path, path: str, body: dict[str, Any]
) -> None:
    """Each token is read only once, even if it is among the most likely ones more often."""
    tokenizer = BlockedTokenizer(model_dir)
    async with serve_runner(LogprobsRunner, tokenizer=tokenizer) as client:
        request = asyncio.create_task(client.post(path, json=body | {"max_tokens": 9}))
        assert await asyncio.to_thread(tokenizer.is_blocked.wait, TIMEOUT_S)
        health = await client.get("/health")
        is_written = request.done()
        tokenizer.may_run.set()
        answer = await request
    assert (health.status_code, is_written, answer.status_code) == (200, False, 200)
    assert "logprob" in answer.text
    assert set(tokenizer.read.values()) == {1}


async def test_the_event_loop_runs_while_the_end_of_a_response_is_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last events of a response hold the text and the log-probabilities of the whole answer."""
    dialect = ResponsesDialect("id", 0)
    dialect.read(b'{"model": "m", "input": "x"}', {})
    loop, named = asyncio.get_running_loop(), responses.named_event

    def named_event_after_turn(body: dict[str, Any]) -> bytes:
        if body["type"].endswith((".done", ".completed")):
            turned = threading.Event()
            loop.call_soon_threadsafe(turned.set)
            assert turned.wait(TIMEOUT_S), "the loop did not turn"
        return named(body)

    async def chat() -> AsyncGenerator[bytes]:
        entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
        for text, reason in (("a", None), ("a", None), ("a", "stop")):
            delta = {"content": text}
            choice = {
                "index": 0, "delta": delta, "logprobs": {"content": [entry]}, "finish_reason": reason,
            }  # fmt: skip
            yield frame({"id": "chatcmpl-id", "model": "m", "choices": [choice]})
        usage = {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
        yield frame({"id": "chatcmpl-id", "model": "m", "choices": [], "usage": usage})

    monkeypatch.setattr(responses, "named_event", named_event_after_turn)
    events = [event async for event in dialect.events(chat())]
    bodies = [read_object(event.split(b"data: ", 1)[1]) for event in events]
    assert [body["type"] for body in bodies[-4:-1]] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
    ]  # fmt: skip
    (item,) = bodies[-1]["response"]["output"]
    assert item["content"][0]["text"] == "aaa"
    assert len(item["content"][0]["logprobs"]) == 3
    assert item["content"][0]["logprobs"][0]["bytes"] == [97]
