"""Effects of flags on requests that wait, take long, or run while the engine stops."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.engine_flags.effects import LONG
from tests.engine_flags.service_engine import Engine


@contextmanager
def busy(engine: Engine) -> Iterator[None]:
    """Fill the only slot of the engine with a long request."""
    with ThreadPoolExecutor(1) as pool:
        body = {"prompt": "The", "max_tokens": 1000, "ignore_eos": True}
        answer = pool.submit(engine.post, "/v1/completions", **body)
        while engine.metric("vllm:num_requests_running") < 1:
            time.sleep(0.01)
        yield
        assert answer.result().status_code == 200


def low_priorities_wait(engine: Engine) -> None:
    """The only slot is taken; of two that wait, the one with the lower number is next."""
    ended: list[int] = []

    def ask(priority: int, delay_s: float) -> None:
        time.sleep(delay_s)
        engine.complete(priority=priority, **LONG)
        ended.append(priority)

    with ThreadPoolExecutor(2) as pool, busy(engine):
        asked = [pool.submit(ask, 9, 0), pool.submit(ask, 1, 0.1)]
    assert [each.result() for each in asked] == [None, None]
    assert ended == [1, 9]


def rejections(engine: Engine, reason: str) -> float:
    return engine.metric("vllm:admission_rejections_total", reason=reason)


def reject(engine: Engine, reason: str, num_requests: int, **body: Any) -> set[int]:
    """Send requests at once to the busy engine until one is rejected. Returns the status codes."""
    codes: set[int] = set()
    for _ in range(10):
        with busy(engine), ThreadPoolExecutor(num_requests) as pool:
            asked = [
                pool.submit(engine.post, "/v1/completions", **body) for _ in range(num_requests)
            ]
            codes |= {answer.result().status_code for answer in asked}
        if rejections(engine, reason) > 0:
            break
    return codes


def long_queues_are_rejected(engine: Engine) -> None:
    """Requests are rejected while one runs and three wait."""
    codes = reject(engine, "max_num_queued_reqs", 8, prompt="The", max_tokens=20)
    assert codes == {200, 503}
    assert rejections(engine, "max_num_queued_reqs") > 0


def long_prompts_in_the_queue_are_rejected(engine: Engine) -> None:
    """Two prompts of 100 tokens are more than the 120 that may wait."""
    codes = reject(engine, "max_num_queued_tokens", 3, prompt=[9] * 100, max_tokens=5)
    assert 503 in codes
    assert rejections(engine, "max_num_queued_tokens") > 0


def long_requests_end(engine: Engine) -> None:
    answer = engine.post("/v1/completions", prompt="The", max_tokens=400, ignore_eos=True, n=64)
    assert answer.status_code == 504, answer.text


def drain_ends_in_time(engine: Engine) -> None:
    """The grace period of 16 s leaves 1 s to running requests. Run it last."""
    with ThreadPoolExecutor(1) as pool:
        # The engine runs one of the three sequences at a time: they take seconds on any machine.
        body = {"prompt": "The", "max_tokens": 1000, "ignore_eos": True, "n": 3}
        answer = pool.submit(engine.post, "/v1/completions", **body)
        time.sleep(0.3)
        begun_s = time.monotonic()
        engine.process.terminate()
        engine.process.join(20)
        assert answer.result().status_code in (503, 504)
    assert 0.9 < time.monotonic() - begun_s < 10
    assert engine.process.exitcode == 0
