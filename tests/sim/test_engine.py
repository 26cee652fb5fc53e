"""Simulated engine: the real scheduler in simulated time."""

from dataclasses import replace
from random import Random

import pytest

from penstock.sim.clock import Clock
from penstock.sim.engine.engine import Engine
from penstock.sim.profile import IterationTimes, Profile
from penstock.sim.request import Request

TIMES = IterationTimes(
    fixed_s=0.01, prompt_token_s=1e-4, pair_s=1e-8, sequence_s=1e-3, kv_token_s=1e-6
)


def profile(**changes: object) -> Profile:
    plain = {
        "name": "test", "source": "made up", "gpu": "X", "gpu_hour_price": 1.0, "times": TIMES,
        "kv_tokens": 64_000, "max_num_batched_tokens": 1000,
    }  # fmt: skip
    return Profile.model_validate(plain | changes)


class Log:
    """Events of an engine as (event, request id)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def started(self, request: Request) -> None:
        self.events.append(("started", request.request_id))

    def ended(self, request: Request) -> None:
        self.events.append(("ended", request.request_id))


def serve(requests: list[Request], engine_profile: Profile, read_every_s: float = 0.0) -> Engine:
    """Serve all requests with one engine until they end."""
    clock = Clock()
    engine = Engine(engine_profile, clock, Log(), Random(0))
    for request in requests:
        clock.schedule_at(request.arrival_s, lambda request=request: engine.submit(request))
    if read_every_s:
        for reading in range(int(20 / read_every_s)):
            clock.schedule_at(reading * read_every_s, engine.reading)
    clock.run(10_000.0)
    engine.scheduler.check()
    assert not engine.num_open
    return engine


def test_the_time_of_one_request_follows_the_profile() -> None:
    """600 prompt tokens in one chunk, then 3 iterations of one sequence that grows by a token."""
    request = Request("a", 1.0, 600, 4)
    serve([request], profile())

    prefill_s = 0.01 + 600 * 1e-4 + 600 * 300 * 1e-8
    decode_s = sum(0.01 + 1e-3 + kv * 1e-6 for kv in (601, 602, 603))
    assert request.ttft_s == pytest.approx(prefill_s)
    assert request.end_s == pytest.approx(1.0 + prefill_s + decode_s)


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks() -> None:
    request = Request("a", 0.0, 1500, 1)
    serve([request], profile())

    chunks = [(1000, 500), (500, 1250)]  # tokens, and the middle of their context
    expected = sum(0.01 + n * 1e-4 + n * middle * 1e-8 for n, middle in chunks)
    assert request.ttft_s == pytest.approx(expected)


def test_an_arrival_within_an_iteration_waits_for_its_end() -> None:
    early, late = Request("early", 0.0, 100, 50), Request("late", 0.5, 100, 1)
    serve([early, late], profile())
    alone = Request("alone", 0.0, 100, 1)
    serve([alone], profile())

    assert alone.ttft_s is not None
    assert late.ttft_s is not None
    most = 0.01 + 1e-3 + 200 * 1e-6  # an iteration of `early`, and then its part in the next one
    assert alone.ttft_s < late.ttft_s <= alone.ttft_s + 2 * most


def test_a_leap_takes_the_time_of_its_single_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests with leaps of 64 iterations and of one: the same times."""

    def times_of() -> list[tuple[float | None, float | None]]:
        random = Random(3)
        requests = [
            Request(str(i), random.uniform(0, 6), random.randint(1, 900), random.randint(1, 80))
            for i in range(40)
        ]
        serve(requests, profile())
        return [(r.first_token_s, r.end_s) for r in requests]

    leaping = times_of()
    monkeypatch.setattr("penstock.sim.engine.leap_scheduler.MAX_ITERATIONS", 1)
    stepping = times_of()

    for (first, end), (first_alone, end_alone) in zip(leaping, stepping, strict=True):
        assert first == pytest.approx(first_alone, abs=1e-6)
        assert end == pytest.approx(end_alone, abs=1e-6)


def test_reading_metrics_changes_nothing() -> None:
    def ends(read_every_s: float) -> list[float | None]:
        requests = [Request(str(i), i * 0.3, 300, 60) for i in range(20)]
        serve(requests, profile(), read_every_s)
        return [request.end_s for request in requests]

    assert ends(0.13) == pytest.approx(ends(0.0))


def test_a_full_cache_preempts_and_all_end() -> None:
    """Blocks for about three of eight sequences: some are recomputed, and the invariants hold."""
    requests = [Request(str(i), 0.01 * i, 100, 400) for i in range(8)]
    engine = serve(requests, profile(kv_tokens=1600, block_size=16))

    reading = engine.reading()
    assert reading.preemptions > 0
    assert reading.finished == len(requests)
    assert reading.output_tokens == reading.output_tokens_finished == 8 * 400
    assert all(request.end_s is not None for request in requests)


@pytest.mark.parametrize(("prompt_tokens", "output_tokens"), [(64, 2), (63, 3), (48, 17)])
def test_a_sequence_preempted_before_its_last_token_ends_with_its_recomputed_prompt(
    prompt_tokens: int, output_tokens: int
) -> None:
    """The last token of each needs a block more than its prompt, and there is one spare block in all."""
    requests = [Request(str(i), 0.0, prompt_tokens, output_tokens) for i in range(8)]
    blocks = 8 * -(-prompt_tokens // 16) + 1
    engine = serve(requests, profile(kv_tokens=blocks * 16, block_size=16))

    assert engine.reading().preemptions > 0
    assert engine.reading().output_tokens_finished == 8 * output_tokens


def test_shared_prefixes_are_computed_once() -> None:
    clock = Clock()
    engine = Engine(profile(), clock, Log(), Random(0), prefix_block_tokens=64)
    first, second = (Request(str(i), 0.0, 640, 1, (*range(9), 100 + i)) for i in (0, 1))
    engine.submit(first)
    clock.run(5.0)
    engine.submit(second)
    clock.run(10.0)

    assert (first.cached_tokens, second.cached_tokens) == (0, 9 * 64)


def test_a_request_that_can_never_fit_is_refused() -> None:
    engine = Engine(profile(), Clock(), Log(), Random(0))
    assert not engine.submit(Request("a", 0.0, 64_000, 1))


def test_a_request_beyond_the_queue_is_refused() -> None:
    engine = Engine(profile(max_num_seqs=1), Clock(), Log(), Random(0))
    scheduler = engine.scheduler
    scheduler.config = replace(scheduler.config, max_num_queued_seqs=1)
    taken = [engine.submit(Request(str(index), 0.0, 100, 10)) for index in range(3)]

    assert taken == [True, True, False]
    assert engine.num_open == 2
