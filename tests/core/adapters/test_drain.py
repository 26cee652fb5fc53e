"""For how long a busy copy takes no requests, and when it may be drained again."""

from penstock.core.adapters.drain import Drain


def asked_every_second(drain: Drain, from_s: int, seconds: int) -> Drain:
    for now_s in range(from_s, from_s + seconds):
        drain = drain.next(now_s)
    return drain


def test_a_drain_ends_soon_after_the_last_request_for_it() -> None:
    drain = asked_every_second(Drain(100.0, 100.0), 101, 3)
    assert drain == Drain(100.0, 103.0)
    assert drain.is_draining(105.4)
    assert not drain.is_draining(105.5)


def test_requests_do_not_prolong_a_drain_beyond_its_limit() -> None:
    drain = asked_every_second(Drain(100.0, 100.0), 101, 9)
    assert drain.is_draining(109.9)
    assert not drain.is_draining(110.0)


def test_the_pause_after_a_drain_doubles_with_each_one_that_times_out() -> None:
    now_s, drain, pauses = 100, Drain(100.0, 100.0), []
    for _ in range(7):
        drain = asked_every_second(drain, now_s, 10)
        assert drain.end_s == now_s + 10
        now_s += 10
        start_s = now_s
        while drain.is_backing_off(now_s):
            now_s += 1
        pauses.append(now_s - start_s)
        drain = drain.next(now_s)
    assert pauses == [10, 20, 40, 80, 160, 300, 300]


def test_a_drain_that_nobody_needs_any_more_does_not_double_the_pause() -> None:
    drain = Drain(100.0, 100.0).next(120.0)
    assert drain == Drain(120.0, 120.0)
    assert drain.is_backing_off(132.4)
    assert not drain.is_backing_off(132.5)


def test_a_drain_is_remembered_for_twice_the_longest_pause() -> None:
    assert Drain(100.0, 100.0).is_remembered(702.4)
    assert not Drain(100.0, 100.0).is_remembered(702.5)
