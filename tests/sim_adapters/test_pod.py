"""A simulated pod with adapter slots."""

from collections import defaultdict

import pytest

from penstock.sim.adapters.pod import AdapterPod
from penstock.sim.adapters.scenario import Adapters
from penstock.sim.clock import Clock
from penstock.sim.request import Request

LOAD_S = 1.0
ADAPTERS = Adapters(count=3, pods=1, slots=2, loads_at_once=1, rps=1)


class Log:
    """Records the ends of loads, and of the last request of a copy, with their times."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.freed_at: list[tuple[str, float]] = []

    def freed(self, pod: AdapterPod, name: str) -> None:
        self.freed_at.append((name, self.clock.now))

    def ended(self, request: Request) -> None: ...


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> Log:
    return Log(clock)


@pytest.fixture
def pod(clock: Clock, log: Log) -> AdapterPod:
    return AdapterPod("p0", ADAPTERS, defaultdict(lambda: LOAD_S), clock, log)


def request(name: str, adapter: str, output_tokens: int = 100) -> Request:
    return Request(name, 0.0, 100, output_tokens, adapter=adapter)


def test_loads_follow_one_another(pod: AdapterPod, clock: Clock, log: Log) -> None:
    pod.load("a")
    pod.load("b")
    assert pod.view().copies["b"].state == "Loading"
    clock.run(10)
    assert log.freed_at == [("a", 1.0), ("b", 2.0)]


def test_a_load_does_not_delay_the_requests_of_others(pod: AdapterPod, clock: Clock) -> None:
    pod.load("a")
    clock.run(1)
    first = request("first", "a")
    pod.submit(first)
    pod.load("b")
    clock.run(1.5)
    assert first.first_token_s is not None
    assert first.first_token_s < 1.1


def test_a_request_waits_for_its_load(pod: AdapterPod, clock: Clock) -> None:
    first = request("first", "a")
    pod.submit(first)
    clock.run(5)
    assert first.first_token_s is not None
    assert LOAD_S < first.first_token_s < LOAD_S + 0.1


def test_the_idle_copy_used_least_recently_is_evicted(pod: AdapterPod, clock: Clock) -> None:
    for name in ("a", "b", "a", "c"):
        pod.submit(request(f"{name}{clock.now}", name))
        clock.run(clock.now + 20)
    assert set(pod.copies) == {"a", "c"}


def test_a_copy_with_requests_is_not_evicted(pod: AdapterPod, clock: Clock) -> None:
    pod.submit(request("long", "a", 1500))
    pod.submit(request("short", "b", 300))
    clock.run(3)
    late = request("late", "c")
    pod.submit(late)
    clock.run(60)
    assert pod.num_loads == 3
    assert late.first_token_s is not None
    assert late.first_token_s > 300 * 0.017


def test_a_copy_that_runs_out_of_requests_is_loaded_again_for_new_ones(
    pod: AdapterPod, clock: Clock
) -> None:
    for number, name in enumerate(("a", "a", "b", "c")):
        pod.submit(request(f"r{number}", name, 900 if name == "a" else 300))
        clock.run(clock.now + 1)
    again = request("again", "b")
    pod.submit(again)  # b has the fewest requests, so it makes room for c
    clock.run(90)
    assert again.first_token_s is not None
    assert pod.num_loads == 4
