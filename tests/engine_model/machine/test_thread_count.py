"""Tests of the number of CPU threads, which depends on the load of other programs."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.machine.thread_count import (
    MAX_RAISE_DELAY_S,
    MAX_WAITING_THREADS,
    MIN_RAISE_DELAY_S,
    CpuUsage,
    ThreadCount,
    decide,
)

WINDOW_S = 0.25
FREE = CpuUsage(waiting_threads=0.0, free_cores=1.0)
CROWDED = CpuUsage(waiting_threads=0.7, free_cores=0.0)
EXACT = CpuUsage(waiting_threads=0.1, free_cores=0.1)


class Windows:
    """Makes one decision per window on a simulated clock."""

    def __init__(self, count: int, max_threads: int = 2) -> None:
        self.threads = ThreadCount(count)
        self.max_threads = max_threads
        self.now_s = 100.0
        self.reason = ""

    def advance(self, usage: CpuUsage | None, seconds: float = WINDOW_S) -> int:
        """Decides once per window for so many seconds. Returns the number of threads."""
        for _ in range(round(seconds / WINDOW_S)):
            self.now_s += WINDOW_S
            decision = decide(self.threads, usage, max_threads=self.max_threads, now_s=self.now_s)
            self.threads, self.reason = decision.threads, decision.reason
        return self.threads.count


@pytest.mark.parametrize(
    ("waiting", "expected"), [(0.3, 8), (0.31, 7), (0.7, 7), (1.4, 7), (3.6, 4), (40.0, 1)]
)
def test_threads_that_wait_for_cores_are_removed_at_once(waiting: float, expected: int) -> None:
    windows = Windows(8, max_threads=8)
    assert windows.advance(CpuUsage(waiting, 0.0)) == expected
    assert windows.reason == (
        "threads wait for cores" if expected < 8 else "all allowed cores are used"
    )


@pytest.mark.parametrize(
    ("count", "usage", "reason"),
    [
        (1, None, "not enough data"),
        (1, CROWDED, "one thread is the minimum"),
        (1, EXACT, "cores are in use"),
        (1, CpuUsage(0.0, 0.79), "cores are in use"),
        (2, EXACT, "all allowed cores are used"),
        (2, FREE, "all allowed cores are used"),
    ],
)
def test_the_number_is_kept_with_a_reason(count: int, usage: CpuUsage | None, reason: str) -> None:
    windows = Windows(count)
    assert windows.advance(usage, 10) == count
    assert windows.reason == reason


def test_free_cores_are_used_after_a_delay() -> None:
    windows = Windows(1)
    assert windows.advance(FREE, MIN_RAISE_DELAY_S) == 1
    assert windows.reason == "cores may stay free"
    assert windows.advance(FREE) == 2
    assert windows.reason == "cores are free"


@pytest.mark.parametrize("between", [EXACT, CROWDED, None], ids=["in-use", "crowded", "unknown"])
def test_the_delay_restarts_when_cores_are_not_free(between: CpuUsage | None) -> None:
    windows = Windows(1)
    windows.advance(FREE, MIN_RAISE_DELAY_S)
    windows.advance(between)
    assert windows.advance(FREE, MIN_RAISE_DELAY_S) == 1
    assert windows.advance(FREE) == 2


@pytest.mark.parametrize(("free", "expected"), [(0.8, 3), (1.7, 3), (1.85, 4), (5.0, 7), (60.0, 8)])
def test_as_many_threads_are_added_as_cores_are_free(free: float, expected: int) -> None:
    windows = Windows(2, max_threads=8)
    assert windows.advance(CpuUsage(0.0, free), MIN_RAISE_DELAY_S + WINDOW_S) == expected


def test_the_delay_doubles_while_added_threads_are_removed_again() -> None:
    windows = Windows(1)
    delays = []
    for _ in range(7):
        windows.advance(FREE, windows.threads.raise_delay_s + WINDOW_S)
        assert windows.threads.count == 2
        assert windows.advance(CROWDED) == 1
        delays.append(windows.threads.raise_delay_s)
    assert delays == [4, 8, 16, 32, MAX_RAISE_DELAY_S, MAX_RAISE_DELAY_S, MAX_RAISE_DELAY_S]


@pytest.mark.parametrize("after", [FREE, EXACT])
def test_the_delay_is_reset_when_added_threads_are_kept(after: CpuUsage) -> None:
    windows = Windows(1)
    windows.advance(FREE, MIN_RAISE_DELAY_S + WINDOW_S)
    windows.advance(CROWDED)
    windows.advance(FREE, windows.threads.raise_delay_s + WINDOW_S)
    assert windows.threads.raise_delay_s == 2 * MIN_RAISE_DELAY_S
    windows.advance(after, 2 * MIN_RAISE_DELAY_S)
    assert windows.threads.raise_delay_s == MIN_RAISE_DELAY_S
    assert windows.advance(CROWDED) == 1
    assert windows.threads.raise_delay_s == MIN_RAISE_DELAY_S


def test_intermittent_load_causes_few_changes() -> None:
    """Another program is busy for 3 s and idle for 3 s, for ten minutes."""
    windows = Windows(2)
    counts = [windows.advance(usage) for _ in range(100) for usage in [CROWDED] * 12 + [FREE] * 12]
    changes = sum(a != b for a, b in itertools.pairwise(counts))
    assert changes <= 3


usages = st.one_of(
    st.none(),
    st.builds(CpuUsage, waiting_threads=st.floats(0, 100), free_cores=st.floats(0, 100)),
)


@given(st.lists(usages, max_size=60), st.integers(1, 9))
def test_the_number_stays_within_its_bounds(measured: list[CpuUsage | None], most: int) -> None:
    windows = Windows(most, most)
    for usage in measured:
        before = windows.threads.count
        count = windows.advance(usage)
        assert 1 <= count <= most
        assert MIN_RAISE_DELAY_S <= windows.threads.raise_delay_s <= MAX_RAISE_DELAY_S
        if usage is None:
            assert count == before
        elif usage.waiting_threads > MAX_WAITING_THREADS:
            assert count < before or count == 1
        else:
            assert count >= before
