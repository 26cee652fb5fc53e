"""Tests of the times in answers, and of the load in headers, for clients that ask for them."""

import json
from typing import Any

import httpx
import pytest

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.server.answers.usage import timings
from penstock_engine.server.generation.generator import Choice
from penstock_engine.server.metrics.request_record import RequestRecord

NAMES = {
    "time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second",
}  # fmt: skip


def choice_of(num_tokens: int, *, scheduled_s: float | None = 1.5) -> Choice:
    """Returns a choice that was queued at 1 s, and had its first token at 2 s and its last one at 3 s."""
    record = RequestRecord(0.5, 10, last_token_s=3.0)
    choice = Choice(0, 0, [7], SamplingParams(max_tokens=10), record)
    choice.first_token_s, choice.completion_tokens = 2.0, num_tokens
    choice.last_event = TokenEvent(
        request_id="r",
        token_ids=(),
        logprobs=(),
        prompt_logprobs=(),
        embedding=(),
        ending_token_id=None,
        finish_reason="length",
        failure=None,
        now_s=3.0,
        queued_s=1.0,
        scheduled_s=scheduled_s,
        first_token_s=2.0,
        num_prompt_tokens=1,
        num_output_tokens=num_tokens,
        num_cached_tokens=0,
        prefill_kv_computed_tokens=1,
        preemptions=0,
        pauses=(),
    )
    return choice


def test_times_have_vllms_names_and_meanings() -> None:
    assert timings(choice_of(10)) == {
        "time_to_first_token_ms": 500.0,
        "generation_time_ms": 1000.0,
        "queue_time_ms": 500.0,
        "mean_itl_ms": pytest.approx(1000 / 9),
        "tokens_per_second": pytest.approx(10 / 1.5),
    }
    assert timings(choice_of(1))["mean_itl_ms"] is None
    assert timings(choice_of(0, scheduled_s=None)) == {}


class EchoRunner:
    """A runner that always samples the same token."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        return {sequence.request_id: SequenceOutput((5,)) for sequence in step.sequences}


TEXT = {"prompt": [7], "max_tokens": 3}
CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}


@pytest.mark.parametrize(("path", "body"), [("completions", TEXT), ("chat/completions", CHAT)])
async def test_answers_have_times_only_with_the_flag(
    serve_runner: Any, path: str, body: dict[str, Any]
) -> None:
    async with serve_runner(EchoRunner, enable_per_request_metrics=True) as client:
        whole = (await client.post(f"/v1/{path}", json=body)).json()
        two = (await client.post(f"/v1/{path}", json=body | {"n": 2})).json()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        stream = (await client.post(f"/v1/{path}", json=body | options)).text
    async with serve_runner(EchoRunner) as client:
        plain = (await client.post(f"/v1/{path}", json=body)).json()
    assert whole["metrics"].keys() == NAMES
    assert "metrics" not in two.keys() | plain.keys()
    *chunks, last, done = stream.strip().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["metrics"].keys() == NAMES
    assert done == "data: [DONE]"
    assert not [chunk for chunk in chunks if '"metrics"' in chunk]


@pytest.mark.parametrize("stream", [False, True])
def test_a_load_balancer_learns_the_load_by_a_header(client: httpx.Client, stream: bool) -> None:
    def load(form: str) -> str | None:
        headers = {"endpoint-load-metrics-format": form}
        body = {"prompt": "a", "max_tokens": 1, "stream": stream}
        return client.post("/v1/completions", json=body, headers=headers).headers.get(
            "endpoint-load-metrics"
        )

    text, own = load("TEXT") or "", load("json") or ""
    assert text.startswith("TEXT named_metrics.kv_cache_usage_perc=0.")
    assert text.endswith(", named_metrics.num_requests_waiting=0")
    assert own.startswith("JSON ")
    assert json.loads(own.removeprefix("JSON "))["named_metrics"]["num_requests_waiting"] == 0
    assert load("BIN") is None
    assert "endpoint-load-metrics" not in client.post("/v1/completions", json=TEXT).headers
