"""A simulated pod with adapter slots."""

import pytest

from penstock.sim.adapters.pod import AdapterPod
from penstock.sim.adapters.run import engine_profile
from penstock.sim.clock import Clock
from penstock.sim.request import Request

LOAD_S = 1.0


class Log:
    """Records the loads that a pod reports, with their times."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.loaded_at: list[tuple[str, float]] = []

    def loaded(self, pod: AdapterPod, name: str) -> None:
        self.loaded_at.append((name, self.clock.now))

    def idle(self, pod: AdapterPod, name: str) -> None: ...

    def started(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None: ...


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> Log:
    return Log(clock)


@pytest.fixture
def pod(clock: Clock, log: Log) -> AdapterPod:
    return AdapterPod("p0", 2, engine_profile(), clock, log, lambda name: LOAD_S)


def request(name: str, output_tokens: int = 100) -> Request:
    return Request(name, 0.0, 100, output_tokens)


def test_loads_follow_one_another(pod: AdapterPod, clock: Clock, log: Log) -> None:
    pod.load("a")
    pod.load("b")
    assert pod.view().copies["b"].state == "Loading"
    clock.run(10)
    assert log.loaded_at == [("a", 1.0), ("b", 2.0)]


def test_a_load_does_not_delay_the_requests_of_others(pod: AdapterPod, clock: Clock) -> None:
    pod.load("a")
    clock.run(1)
    first = request("first")
    pod.submit(first, "a")
    pod.load("b")
    clock.run(1.5)
    assert first.first_token_s is not None
    assert first.first_token_s < 1.1


def test_a_request_waits_for_its_load(pod: AdapterPod, clock: Clock) -> None:
    first = request("first")
    pod.submit(first, "a")
    clock.run(5)
    assert first.first_token_s is not None
    assert LOAD_S < first.first_token_s < LOAD_S + 0.1


def test_the_idle_copy_used_least_recently_is_evicted(pod: AdapterPod, clock: Clock) -> None:
    for name in ("a", "b", "a", "c"):
        pod.submit(request(f"{name}{clock.now}"), name)
        clock.run(clock.now + 20)
    assert set(pod.copies) == {"a", "c"}


def test_a_copy_with_requests_is_not_evicted(pod: AdapterPod, clock: Clock) -> None:
    pod.submit(request("long", 1500), "a")
    pod.submit(request("short", 300), "b")
    clock.run(3)
    late = request("late")
    pod.submit(late, "c")
    clock.run(60)
    assert pod.num_loads == 3
    assert late.first_token_s is not None
    assert late.first_token_s > 300 * 0.017


def test_a_copy_that_runs_out_of_requests_is_loaded_again_for_new_ones(
    pod: AdapterPod, clock: Clock
) -> None:
    for number, name in enumerate(("a", "a", "b", "c")):
        pod.submit(request(f"r{number}", 900 if name == "a" else 300), name)
        clock.run(clock.now + 1)
    again = request("again")
    pod.submit(again, "b")  # b has the fewest requests, so it makes room for c
    clock.run(90)
    assert again.first_token_s is not None
    assert pod.num_loads == 4
