"""For how long a busy copy takes no requests, and when it may be closed again."""

from penstock.core.adapters.closure import Closure


def asked_every_second(closure: Closure, from_s: int, seconds: int) -> Closure:
    for now_s in range(from_s, from_s + seconds):
        closure = closure.next(now_s)
    return closure


def test_a_closure_ends_soon_after_the_last_request_for_it() -> None:
    closure = asked_every_second(Closure(100.0, 100.0), 101, 3)
    assert closure == Closure(100.0, 103.0)
    assert closure.is_closed(105.4)
    assert not closure.is_closed(105.5)


def test_requests_do_not_prolong_a_closure_beyond_its_limit() -> None:
    closure = asked_every_second(Closure(100.0, 100.0), 101, 9)
    assert closure.is_closed(109.9)
    assert not closure.is_closed(110.0)


def test_the_pause_after_a_closure_doubles_with_each_one_in_vain() -> None:
    now_s, closure, pauses = 100, Closure(100.0, 100.0), []
    for _ in range(7):
        closure = asked_every_second(closure, now_s, 10)
        assert closure.end_s == now_s + 10
        now_s += 10
        start_s = now_s
        while closure.is_kept_open(now_s):
            now_s += 1
        pauses.append(now_s - start_s)
        closure = closure.next(now_s)
    assert pauses == [10, 20, 40, 80, 160, 300, 300]


def test_a_closure_that_nobody_needs_any_more_does_not_double_the_pause() -> None:
    closure = Closure(100.0, 100.0).next(120.0)
    assert closure == Closure(120.0, 120.0)
    assert closure.is_kept_open(132.4)
    assert not closure.is_kept_open(132.5)


def test_a_closure_is_remembered_for_twice_the_longest_pause() -> None:
    assert Closure(100.0, 100.0).is_remembered(702.4)
    assert not Closure(100.0, 100.0).is_remembered(702.5)
