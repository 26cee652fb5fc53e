"""Who is charged for each way in which a request can end."""

import pytest

from penstock.core.routing.charge import (
    CHARGES,
    Charge,
    Ending,
    FailedAttempt,
    blamed,
    ending_of,
    of_sides,
)
from penstock.core.routing.pick import Endpoint, Side

# Engine, revision, service, retry.
TABLE = {
    "connect": ("Unreachable", "BlamedUnlessAnswered", "Failed", "Waiting"),
    "unsent": ("Failure", "Blamed", "Failed", "Several"),
    "reset": ("Failure", "Blamed", "Failed", "Once"),
    "invalid": ("Failure", "Blamed", "Failed", "Once"),
    "unavailable": ("Failure", "Blamed", "Failed", "Several"),
    "error": ("Failure", "Blamed", "Failed", "Once"),
    "no_copy": (None, "Never", "Failed", "Several"),
    "copy_unavailable": (None, "Never", "Failed", "Several"),
    "unready": (None, "Never", "Failed", "Several"),
    "answered": (None, "Never", "Ended", "Never"),
    "refused": (None, "Never", None, "Never"),
    "unsupported": (None, "Never", None, "Never"),
    "no_first_byte": ("Failure", "Always", "Failed", "Never"),
    "silent": ("BrokeOff", "Always", "Failed", "Never"),
    "truncated": ("BrokeOff", "Always", "Failed", "Never"),
    "error_event": ("BrokeOff", "Always", "Failed", "Never"),
    "total_timeout": (None, "Never", "Failed", "Never"),
    "client_left": (None, "Never", None, "Never"),
    "client_stalled": (None, "Never", None, "Never"),
    "route_timeout": (None, "Never", None, "Never"),
    "adapter_refused": (None, "Adapter", None, "Never"),
    "no_engine": (None, "Never", "Shed", "Never"),
    "shutdown": (None, "Never", "Failed", "Never"),
    "gateway_failed": (None, "Never", "Failed", "Never"),
}


@pytest.mark.parametrize("ending", Ending)
def test_charge_of_each_ending(ending):
    assert CHARGES[ending] == Charge(*TABLE[ending.value])


def test_no_row_is_without_an_ending():
    assert TABLE.keys() == {ending.value for ending in CHARGES} == set(Ending)


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (200, "answered"), (302, "answered"), (400, "refused"), (429, "refused"), (499, "refused"),
        (500, "error"), (501, "unsupported"), (502, "unavailable"), (503, "unavailable"),
        (504, "unsupported"), (505, "unsupported"), (507, "error"), (599, "error"),
    ],
)  # fmt: skip
def test_ending_of_a_status(status, ending):
    assert ending_of(status) == ending


A, B = (Endpoint(f"default/{name}", "10.0.0.1:8000", "r1") for name in "ab")
C = Endpoint("default/c", "10.0.0.1:8000", "r2")
R1, R2 = Side("r1"), Side("r2")


@pytest.mark.parametrize(
    ("failed", "serving", "is_answered", "charged"),
    [
        # Another engine answered: it was the engines' fault, but lost connections are of any revision.
        ([(C, "error")], [R1, R2], True, [C]),
        ([(A, "reset"), (C, "unavailable")], [R1, R2], True, [A, C]),
        ([(C, "connect")], [R1, R2], True, []),
        ([(C, "unready"), (A, "no_copy")], [R1, R2], True, []),
        # None did: engines of both sides failed, or one side was not tried.
        ([(A, "error"), (C, "error")], [R1, R2], False, []),
        ([(A, "reset"), (B, "reset")], [R1, R2], False, []),
        ([(C, "error")], [R1, R2], False, []),
        # There is no other side.
        ([(A, "reset"), (B, "reset")], [R1], False, [A, B]),
        ([(C, "error")], [R2], False, [C]),
        ([(A, "connect")], [R1], False, [A]),
        ([(A, "error")], [], False, [A]),
        ([], [R1], False, []),
    ],
)
def test_revisions_charged_for_failed_attempts(failed, serving, is_answered, charged):
    attempts = [FailedAttempt(endpoint, Ending(ending)) for endpoint, ending in failed]
    assert blamed(attempts, serving, is_answered=is_answered) == charged


@pytest.mark.parametrize(
    ("failed", "weights", "exclude", "avoided"),
    [
        ([], {R1: 50, R2: 50}, [], set()),
        ([R1], {R1: 50, R2: 50}, [], {A.pod, B.pod}),
        ([R2], {R1: 50, R2: 50}, [], {C.pod}),
        ([R1], {R1: 100, R2: 0}, [], set()),
        ([R1], {R1: 50, R2: 50}, [C.pod], set()),
        ([R1, R2], {R1: 50, R2: 50}, [], set()),
    ],
)
def test_retries_go_to_another_side(failed, weights, exclude, avoided):
    assert of_sides(set(failed), [A, B, C], weights, exclude) == avoided
