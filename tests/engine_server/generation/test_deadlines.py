"""Tests of deadlines: late requests are aborted, and errors, logs and metrics name the phase."""

import asyncio
import json
import threading
import time
from typing import Any

import httpx
import pytest

from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.server.transport.deadlines import deadline_s, tpot_s
from penstock_engine.server.transport.errors import RequestError

OWN, ENVOY = "x-request-timeout-s", "x-envoy-expected-rq-timeout-ms"
TPOT = "x-penstock-tpot-s"


@pytest.mark.parametrize(
    ("headers", "most_s", "expected"),
    [
        ({}, None, None),
        ({}, 30.0, 130.0),
        ({OWN: "2.5"}, None, 102.5),
        ({OWN: "2.5"}, 30.0, 102.5),
        ({OWN: "60"}, 30.0, 130.0),
        ({OWN: "0"}, None, 100.0),
        ({ENVOY: "1500"}, None, 101.5),
        ({ENVOY: "0"}, None, None),
        ({ENVOY: "1500", OWN: "1"}, 9.0, 101.0),
    ],
)
def test_the_earliest_deadline_counts(
    headers: dict[str, str], most_s: float | None, expected: float | None
) -> None:
    assert deadline_s(headers, 100.0, most_s) == expected


@pytest.mark.parametrize("header", [OWN, ENVOY])
@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e99", "1 2"])
def test_an_invalid_timeout_header_is_rejected(header: str, text: str) -> None:
    with pytest.raises(RequestError) as error:
        deadline_s({header: text}, 0.0, None)
    assert (error.value.status, error.value.param) == (400, header)


@pytest.mark.parametrize(("headers", "expected"), [({}, None), ({TPOT: "0.05"}, 0.05)])
def test_the_requested_time_per_token_is_read(
    headers: dict[str, str], expected: float | None
) -> None:
    assert tpot_s(headers) == expected


@pytest.mark.parametrize("text", ["", "fast", "-1", "nan"])
def test_an_invalid_tpot_header_is_rejected(text: str) -> None:
    with pytest.raises(RequestError) as error:
        tpot_s({TPOT: text})
    assert (error.value.status, error.value.param) == (400, TPOT)


class SlowRunner:
    """A runner whose steps take `step_s` seconds."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self.is_running = threading.Event()

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        self.is_running.set()
        time.sleep(self._step_s)
        return {s.request_id: SequenceOutput((5,)) for s in step.sequences if s.is_sampled}


def timeouts(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line.startswith("penstock:request_timeouts_")]
    return {line.split('phase="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


@pytest.mark.parametrize(
    ("prompt", "step_s", "phase", "words"),
    [
        (50, 0.05, "prefill", "while its prompt was computed"),
        (2, 0.005, "decode", "while its answer was generated"),
    ],
)
async def test_error_log_and_metric_name_the_phase(
    serve_runner: Any,
    caplog: pytest.LogCaptureFixture,
    prompt: int,
    step_s: float,
    phase: str,
    words: str,
) -> None:
    """The prefill of 50 tokens in chunks of 4 takes 13 steps."""
    caplog.set_level("INFO", "penstock_engine.server.generation.request_log")
    async with serve_runner(lambda: SlowRunner(step_s), max_num_batched_tokens=4) as client:
        answer = await client.post(
            "/v1/completions",
            json={"prompt": [7] * prompt, "max_tokens": 10, "ignore_eos": True}
            | ({"max_tokens": 60} if phase == "decode" else {}),
            headers={OWN: "0.15"},
        )
        metrics = timeouts((await client.get("/metrics")).text)
    error = answer.json()["error"]
    line, failure = (r.fields for r in caplog.records if r.name.endswith("request_log"))
    assert (answer.status_code, error["type"]) == (504, "DeadlineExceededError")
    assert words in error["message"]
    assert (line["finish_reason"], line["phase"]) == ("timeout", phase)
    assert (failure["status"], failure["reason"]) == (504, error["message"])
    assert metrics == {"queued": 0, "prefill": 0, "decode": 0} | {phase: 1}


async def test_a_request_past_its_deadline_in_the_queue_is_a_504(serve_runner: Any) -> None:
    runner = SlowRunner(0.02)
    async with serve_runner(lambda: runner, max_num_seqs=1, request_timeout_s=0.3) as client:
        body = {"prompt": [7], "max_tokens": 60, "ignore_eos": True}
        first = asyncio.create_task(client.post("/v1/completions", json=body))
        await asyncio.to_thread(runner.is_running.wait, 10)
        late = await client.post("/v1/completions", json=body, headers={OWN: "0.05"})
        metrics = timeouts((await client.get("/metrics")).text)
        cut = await first
    assert late.status_code == cut.status_code == 504
    assert "while it waited" in late.json()["error"]["message"]
    assert "while its answer was generated" in cut.json()["error"]["message"]
    assert metrics["queued"] == 1


async def test_a_request_within_its_deadline_is_answered(serve_runner: Any) -> None:
    async with serve_runner(lambda: SlowRunner(0)) as client:
        answer = await client.post(
            "/v1/completions", json={"prompt": [7], "max_tokens": 3}, headers={OWN: "30"}
        )
    assert answer.json()["usage"]["completion_tokens"] == 3


def test_a_stream_past_its_deadline_ends_with_an_error(client: httpx.Client) -> None:
    body = {"prompt": "The engine", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/completions", json=body, headers={OWN: "0.5"}) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == 504


async def test_lower_priority_values_run_first(serve_runner: Any) -> None:
    runner = SlowRunner(0.02)
    ended: list[int] = []
    async with serve_runner(lambda: runner, max_num_seqs=1, scheduling_policy="priority") as client:

        async def ask(priority: int) -> None:
            body = {"prompt": [7], "max_tokens": 2, "ignore_eos": True, "priority": priority}
            answer = await client.post("/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            ended.append(priority)

        first = asyncio.create_task(ask(-9))
        await asyncio.to_thread(runner.is_running.wait, 10)
        await asyncio.gather(*(ask(priority) for priority in (3, 0, 7, -1)), first)
    assert ended == [-9, -1, 0, 3, 7]
