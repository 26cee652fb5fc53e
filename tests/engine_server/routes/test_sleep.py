"""Tests of sleep mode: memory is freed, requests are rejected, and answers are equal after waking."""

import asyncio
import gc
import time
import weakref
from typing import Any

import httpx
import pytest

from penstock_engine.core.errors import ModelError
from penstock_engine.core.step import SequenceOutput, Step

GREEDY = {"prompt": "The engine", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


def states(client: httpx.Client) -> dict[str, str]:
    lines = client.get("/metrics").text.splitlines()
    return {
        line.split('sleep_state="')[1].split('"')[0]: line.split()[-1]
        for line in lines
        if line.startswith("vllm:engine_sleep_state{")
    }


@pytest.fixture(scope="module")
def sleepy(launch: Any) -> httpx.Client:
    client: httpx.Client
    client, _ = launch(
        "--max-model-len", "2048", "--enable-sleep-mode", "--api-key", "k",
        "--enable-prompt-tokens-details",
    )  # fmt: skip
    client.headers["authorization"] = "Bearer k"
    return client


@pytest.mark.parametrize("level", [1, 2])
def test_answers_are_the_same_after_a_sleep(sleepy: httpx.Client, level: int) -> None:
    before = sleepy.post("/v1/completions", json=GREEDY).json()
    assert sleepy.post("/sleep", params={"level": level}).status_code == 200
    asleep = states(sleepy)
    rejected = sleepy.post("/v1/completions", json=GREEDY)
    ready, health = sleepy.get("/ready"), sleepy.get("/health")
    is_sleeping = sleepy.get("/is_sleeping").json()
    assert sleepy.post("/wake_up").status_code == 200
    after = sleepy.post("/v1/completions", json=GREEDY).json()

    name = {1: "weights_offloaded", 2: "discard_all"}[level]
    assert asleep == {"awake": "0.0", "weights_offloaded": "0.0", "discard_all": "0.0"} | {
        name: "1.0"
    }
    assert states(sleepy) == {"awake": "1.0", "weights_offloaded": "0.0", "discard_all": "0.0"}
    assert (rejected.status_code, ready.status_code, health.status_code) == (503, 503, 200)
    assert rejected.headers["retry-after"]
    assert (ready.text, is_sleeping) == ("asleep", {"is_sleeping": True})
    assert sleepy.get("/is_sleeping").json() == {"is_sleeping": False}
    assert after["choices"][0]["text"] == before["choices"][0]["text"]


def test_the_cache_does_not_survive_a_sleep(sleepy: httpx.Client) -> None:
    body = GREEDY | {"prompt": list(range(300, 370)), "max_tokens": 1}
    cached = []
    for between in (None, None, "/reset_prefix_cache", None, "/sleep"):
        if between:
            assert sleepy.post(between).status_code == 200
        sleepy.post("/wake_up")
        usage = sleepy.post("/v1/completions", json=body).json()["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 64, 0, 64, 0]


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/sleep", {"level": "3"}),
        ("/sleep", {"level": "x"}),
        ("/sleep", {"mode": "keep"}),
        ("/wake_up", {"tags": "scheduling"}),
    ],
)
def test_invalid_parameters_are_rejected(
    sleepy: httpx.Client, path: str, params: dict[str, str]
) -> None:
    assert sleepy.post(path, params=params).status_code == 400
    assert sleepy.get("/is_sleeping").json() == {"is_sleeping": False}


@pytest.mark.parametrize("order", [("weights", "kv_cache"), ("kv_cache", "weights")])
def test_the_engine_sleeps_until_all_tags_are_woken(
    sleepy: httpx.Client, order: tuple[str, str]
) -> None:
    states_after = []
    assert sleepy.post("/sleep").status_code == 200
    for tag in (order[0], order[0], order[1]):
        assert sleepy.post("/wake_up", params={"tags": tag}).status_code == 200
        states_after.append(sleepy.get("/is_sleeping").json()["is_sleeping"])
    assert states_after == [True, True, False]
    assert sleepy.post("/v1/completions", json=GREEDY).status_code == 200


def test_a_sleep_resets_the_woken_tags(sleepy: httpx.Client) -> None:
    for path in ("/sleep", "/wake_up?tags=weights", "/sleep", "/wake_up?tags=kv_cache"):
        assert sleepy.post(path).status_code == 200
    assert sleepy.get("/is_sleeping").json() == {"is_sleeping": True}
    assert sleepy.post("/wake_up").status_code == 200
    assert sleepy.get("/is_sleeping").json() == {"is_sleeping": False}


def test_both_tags_in_one_request_wake_the_engine(sleepy: httpx.Client) -> None:
    assert sleepy.post("/wake_up?tags=weights&tags=kv_cache").status_code == 200


@pytest.mark.parametrize("path", ["/sleep", "/wake_up", "/reset_prefix_cache"])
def test_sleep_routes_need_the_key(sleepy: httpx.Client, path: str) -> None:
    assert httpx.post(sleepy.base_url.join(path)).status_code == 401


def test_sleep_routes_need_the_flag(client: httpx.Client) -> None:
    assert client.post("/sleep").status_code == 404


class EchoRunner:
    """A runner that always samples the same token."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        return {sequence.request_id: SequenceOutput((5,)) for sequence in step.sequences}


async def test_a_sleeping_engine_has_no_reference_to_its_runner(serve_runner: Any) -> None:
    made: list[weakref.ref[EchoRunner]] = []

    def load() -> EchoRunner:
        runner = EchoRunner()
        made.append(weakref.ref(runner))
        return runner

    async with serve_runner(load, enable_sleep_mode=True) as client:
        await client.post("/v1/completions", json=GREEDY)
        await client.post("/sleep")
        gc.collect()
        asleep = [runner() for runner in made]
        await client.post("/wake_up")
        awake = [runner() is not None for runner in made]
    assert asleep == [None]
    assert awake == [False, True]


class SlowRunner:
    """A runner whose steps take 10 ms."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        time.sleep(0.01)
        return {sequence.request_id: SequenceOutput((5,)) for sequence in step.sequences}


@pytest.mark.parametrize(("mode", "status"), [("abort", 503), ("wait", 200)])
async def test_a_sleep_aborts_running_requests_or_waits_for_them(
    serve_runner: Any, mode: str, status: int
) -> None:
    async with serve_runner(SlowRunner, enable_sleep_mode=True) as client:
        running = asyncio.create_task(
            client.post("/v1/completions", json=GREEDY | {"max_tokens": 40, "prompt": [7]})
        )
        is_running = 'vllm:num_requests_running{engine="0",model_name="small"} 1.0'
        while is_running not in (await client.get("/metrics")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        slept = await client.post("/sleep", params={"mode": mode})
        answer = await running
        rejected = await client.post("/v1/completions", json=GREEDY)
    assert (slept.status_code, answer.status_code, rejected.status_code) == (200, status, 503)
    for refused in (answer, rejected) if status == 503 else (rejected,):
        assert refused.json()["error"]["message"] == "the engine is asleep: try again"


async def test_the_engine_stays_asleep_if_the_model_is_missing(serve_runner: Any) -> None:
    loads = iter([EchoRunner, None, EchoRunner])

    def load() -> EchoRunner:
        kind = next(loads)
        if kind is None:
            raise ModelError("ModelNotFound", "there is no model directory at this place")
        return kind()

    async with serve_runner(load, enable_sleep_mode=True) as client:
        await client.post("/sleep")
        failed = await client.post("/wake_up")
        still = (await client.get("/is_sleeping")).json()
        again = await client.post("/wake_up")
        answer = await client.post("/v1/completions", json=GREEDY)
    assert (failed.status_code, still) == (503, {"is_sleeping": True})
    assert "no model directory" in failed.json()["error"]["message"]
    assert (again.status_code, answer.status_code) == (200, 200)
