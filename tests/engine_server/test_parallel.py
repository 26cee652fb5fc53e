"""Tests of a server whose model runs in several processes: sleep, drain, failure and exit."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest

LONG = {"prompt": "The engine", "max_tokens": 200, "ignore_eos": True, "stream": True}
GREEDY = {"prompt": "The engine", "max_tokens": 20, "temperature": 0}
END_TIMEOUT_S = 20


def lines_of(answer: httpx.Response) -> Iterator[str]:
    return (line for line in answer.iter_lines() if line)


def workers_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children()
    return [p for p in children if "penstock_engine.execution.parallel.worker" in p.cmdline()]


def all_end(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, END_TIMEOUT_S)[1]


def until_status(client: httpx.Client, path: str, status: int) -> None:
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while client.get(path).status_code != status:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def text(client: httpx.Client) -> str:
    answer = client.post("/v1/completions", json=GREEDY)
    assert answer.status_code == 200, answer.text
    generated: str = answer.json()["choices"][0]["text"]
    return generated


def test_a_parallel_engine_answers_sleeps_and_drains_like_one_process(
    launch: Any, client: httpx.Client
) -> None:
    parallel, process = launch(
        "--tensor-parallel-size", "2", "--max-model-len", "2048", "--enable-sleep-mode"
    )
    expected = text(client)
    assert text(parallel) == expected
    before = workers_of(process.pid)
    assert len(before) == 1
    assert parallel.post("/sleep?level=1").status_code == 200
    assert all_end(before)
    assert parallel.post("/wake_up").status_code == 200
    assert text(parallel) == expected

    workers = workers_of(process.pid)
    with parallel.stream("POST", "/v1/completions", json=LONG) as answer:
        lines = lines_of(answer)
        next(lines)
        # Signals all processes, like a terminal does.
        for target in (process, *workers):
            target.terminate()
        rest = list(lines)
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    process.join(END_TIMEOUT_S)
    assert process.exitcode == 0
    assert all_end(workers)


@pytest.mark.parametrize(
    ("flag", "is_busy"), [("--tensor-parallel-size", True), ("--pipeline-parallel-size", False)]
)
def test_the_death_of_a_worker_makes_the_engine_unhealthy(
    launch: Any, flag: str, is_busy: bool
) -> None:
    client, process = launch(flag, "2", "--max-model-len", "2048")
    [worker] = workers_of(process.pid)
    if is_busy:
        with client.stream("POST", "/v1/completions", json=LONG) as answer:
            lines = lines_of(answer)
            next(lines)
            worker.kill()
            rest = list(lines)
        error = json.loads(rest[-2].removeprefix("data: "))["error"]
        assert (error["code"], error["type"]) == (503, "ServiceUnavailableError")
    else:
        worker.kill()
    until_status(client, "/health", 503)
    assert client.get("/ready").status_code == 503
    assert client.post("/v1/completions", json=GREEDY).status_code == 503
    process.terminate()
    process.join(END_TIMEOUT_S)
    assert process.exitcode == 0


def test_workers_exit_if_the_engine_is_killed(launch: Any) -> None:
    client, process = launch("--tensor-parallel-size", "2", "--max-model-len", "2048")
    workers = workers_of(process.pid)
    assert len(workers) == 1
    with client.stream("POST", "/v1/completions", json=LONG) as answer:
        next(lines_of(answer))
        process.kill()
    process.join()
    assert all_end(workers)
