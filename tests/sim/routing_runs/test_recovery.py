"""Hits of conversations around an event."""

import pytest

from penstock.sim.request import Request
from penstock.sim.routing_runs.recovery import Recovery, recovery, turns_until_recovered

REUSABLE = 100


def turn(session: str, number: int, sent_s: float, pod: str, cached: int) -> Request:
    request = Request(f"{session}{number}", sent_s, 200, 10, session=session, turn=number)
    request.sent_s, request.pod, request.cached_tokens = sent_s, pod, cached
    request.first_token_s = sent_s + 1
    return request


@pytest.mark.parametrize(
    ("ratios", "turns"),
    [([1.0], 1), ([0.9, 0.0], 1), ([0.2, 0.89, 0.95], 3), ([0.2], 2)],
)
def test_turns_until_the_hits_are_back(ratios: list[float], turns: int) -> None:
    assert turns_until_recovered(ratios) == turns


def test_conversations_of_the_engine_are_compared_before_and_after() -> None:
    requests = [
        turn("x", 0, 10.0, "a", 0),  # a first turn is no state before the event
        turn("y", 0, 10.0, "b", 0),
        turn("x", 1, 20.0, "a", 80),
        turn("y", 1, 30.0, "b", 100),
        turn("x", 2, 60.0, "c", 0),
        turn("y", 2, 61.0, "b", 100),  # its engine did not restart
        turn("z", 0, 62.0, "a", 0),  # it began after the event
        turn("x", 3, 70.0, "c", 95),
    ]
    reusable = {request.request_id: REUSABLE for request in requests}
    found = recovery(requests, reusable, at_s=50.0, pod="a")
    assert found == Recovery(
        before=0.9, after=(0.0, 0.95, 1.0, 1.0, 1.0, 1.0), turns=2.0, conversations=1
    )
    of_all = recovery(requests, reusable, at_s=50.0, pod="")
    assert of_all is not None
    assert (of_all.after[0], of_all.turns, of_all.conversations) == (0.5, 1.5, 2)


def test_nothing_is_said_without_conversations_around_the_event() -> None:
    requests = [turn("x", 0, 10.0, "a", 0), turn("x", 1, 20.0, "a", 80)]
    reusable = {request.request_id: REUSABLE for request in requests}
    assert recovery(requests, reusable, at_s=50.0, pod="") is None
