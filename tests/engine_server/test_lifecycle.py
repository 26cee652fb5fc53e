"""Tests of startup errors, API keys, a full queue, the drain, and failures of the engine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock_engine.contract import log_fields
from penstock_engine.core.step import SequenceOutput, Step

LONG = {"prompt": "The engine", "max_tokens": 1500, "ignore_eos": True, "stream": True}
COMMAND = Path(sys.executable).with_name("penstock-engine")
SHORT = {"prompt": "The engine", "max_tokens": 2}


def lines_of(answer: httpx.Response) -> Iterator[str]:
    return (line for line in answer.iter_lines() if line)


def metric(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


def test_a_drain_finishes_running_requests_and_rejects_new_ones(launch: Any) -> None:
    client, process = launch("--max-model-len", "2048", "--shutdown-timeout", "60")
    with client.stream("POST", "/v1/completions", json=LONG | {"max_tokens": 250}) as answer:
        lines = lines_of(answer)
        next(lines)
        process.terminate()
        while client.get("/ready").status_code == 200:
            pass

        rejected = client.post("/v1/completions", json=SHORT)
        assert client.get("/health").status_code == 200
        assert metric(client, "penstock:draining") == 1
        rest = list(lines)

    assert rejected.status_code == 503
    assert int(rejected.headers["retry-after"]) >= 1
    assert rejected.json()["error"]["type"] == "ServiceUnavailableError"
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    process.join(30)
    assert process.exitcode == 0


@pytest.mark.parametrize(
    ("timeout", "signals"), [("60", 2), ("0.1", 1)], ids=["second signal", "time is up"]
)
def test_a_drain_that_is_cut_short_sends_an_error_to_the_client(
    launch: Any, timeout: str, signals: int
) -> None:
    client, process = launch("--max-model-len", "2048", "--shutdown-timeout", timeout)
    with client.stream("POST", "/v1/completions", json=LONG) as answer:
        lines = lines_of(answer)
        next(lines)
        process.terminate()
        while client.get("/ready").status_code == 200 and process.is_alive():
            pass
        if signals == 2:
            process.terminate()
        rest = list(lines)

    assert rest[-1] == "data: [DONE]"
    error = json.loads(rest[-2].removeprefix("data: "))["error"]
    assert (error["code"], error["type"]) == (503, "ServiceUnavailableError")
    process.join(30)
    assert process.exitcode == 0


def test_a_drain_without_requests_ends_at_once(launch: Any) -> None:
    client, process = launch("--max-model-len", "2048")
    client.close()
    process.terminate()
    process.join(30)
    assert process.exitcode == 0


@pytest.fixture(scope="module")
def client_with_key(launch: Any) -> httpx.Client:
    """A client of an engine with an API key, one slot and a queue of one."""
    client: httpx.Client
    client, _ = launch(
        "--api-key", "s3cret", "--max-num-seqs", "1", "--max-num-queued-reqs", "1",
        "--max-model-len", "2048",
    )  # fmt: skip
    client.headers["authorization"] = "Bearer s3cret"
    return client


@pytest.mark.parametrize("key", ["", "Bearer", "Bearer wrong", "Basic s3cret", "s3cret"])
@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/completions", "/nothing", "/health/", "/metrics/.."]
)
def test_all_other_paths_need_the_key(client_with_key: httpx.Client, path: str, key: str) -> None:
    """The routed path decides: a Host header that contains an open path has no effect."""
    headers = {"authorization": key, "host": "localhost/health?"}
    answer = httpx.get(client_with_key.base_url.join(path), headers=headers)
    assert answer.status_code == answer.json()["error"]["code"] == 401
    assert answer.json()["error"]["type"] == "AuthenticationError"


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/ping", "/version"])
def test_probes_need_no_key(client_with_key: httpx.Client, path: str) -> None:
    assert httpx.get(client_with_key.base_url.join(path)).status_code == 200


def test_the_key_is_accepted(client_with_key: httpx.Client) -> None:
    assert client_with_key.get("/v1/models").status_code == 200
    assert (
        client_with_key.get("/v1/models", headers={"authorization": "bearer s3cret"}).status_code
        == 200
    )


def test_a_full_queue_rejects_with_retry_after(client_with_key: httpx.Client) -> None:
    before = metric(client_with_key, "vllm:admission_rejections_total")
    with ThreadPoolExecutor(6) as pool:
        body = LONG | {"stream": False, "max_tokens": 150}
        answers = list(
            pool.map(lambda _: client_with_key.post("/v1/completions", json=body), range(6))
        )
    rejected = [answer for answer in answers if answer.status_code == 503]
    assert {answer.status_code for answer in answers} == {200, 503}
    assert all("retry-after" in answer.headers for answer in rejected)
    assert metric(client_with_key, "vllm:admission_rejections_total") - before == len(rejected)
    assert client_with_key.post("/v1/completions", json=SHORT).status_code == 200


class BrokenRunner:
    """A runner that raises for sequences with one token id, or for all."""

    def __init__(self, fails_for: int | None) -> None:
        self._fails_for = fails_for

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        for sequence in step.sequences:
            if self._fails_for is None or self._fails_for in sequence.token_ids:
                raise RuntimeError("CUDA error at /opt/secret/path")
        return {sequence.request_id: SequenceOutput((5,)) for sequence in step.sequences}


async def test_a_failed_request_does_not_affect_others(
    serve_runner: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock_engine.server.generation.request_log")
    async with serve_runner(lambda: BrokenRunner(fails_for=66)) as client:
        bad = await client.post("/v1/completions", json={"prompt": [66], "max_tokens": 3})
        good = await client.post("/v1/completions", json={"prompt": [67], "max_tokens": 3})
        health = await client.get("/health")
    assert bad.status_code == 500
    assert bad.json()["error"]["message"] == "the engine could not compute this request"
    assert (good.status_code, health.status_code) == (200, 200)
    records = [each for each in caplog.records if each.name.endswith("request_log")]
    failed, why, ended = (record.fields for record in records)
    assert (failed["finish_reason"], ended["finish_reason"]) == ("error", "length")
    assert why == {
        "request_id": failed["request_id"],
        "status": 500,
        "reason": "the engine could not compute this request",
    }
    assert ended.keys() == {
        "request_id", "model", "prompt_tokens", "completion_tokens", "cached_tokens", "queue_ms",
        "ttft_ms", "tpot_ms", "preemptions", "finish_reason",
    }  # fmt: skip
    assert (ended["prompt_tokens"], ended["completion_tokens"]) == (1, 3)
    assert ended.keys() <= log_fields.REQUEST.keys()
    assert why.keys() <= log_fields.FAILURE.keys()
    assert ended["request_id"] == good.headers["x-request-id"]


async def test_an_engine_whose_thread_ends_is_unhealthy(serve_runner: Any) -> None:
    async with serve_runner(lambda: BrokenRunner(fails_for=None)) as client:
        body = {"prompt": [66], "max_tokens": 3}
        statuses = [(await client.post("/v1/completions", json=body)).status_code for _ in range(5)]
        health, ready = await client.get("/health"), await client.get("/ready")
    assert statuses == [500, 500, 500, 503, 503]
    assert (health.status_code, ready.status_code) == (503, 503)


def test_a_missing_model_is_a_startup_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [COMMAND, "serve", tmp_path / "absent"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("ModelNotFound: ")
    assert str(tmp_path / "absent") in done.stderr
