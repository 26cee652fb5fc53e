"""The charge of each ending of a request: its engine, the revision, the service and the retry."""

import pytest

from penstock.core.routing.charge import (
    CHARGES,
    Ending,
    FailedAttempt,
    ending_of,
    ending_of_timeout,
    find_blamed_endpoints,
    find_pods_of_failed_sides,
    is_version_blamed,
    shows_answerable,
)
from penstock.core.routing.pick import Endpoint, Side

# Endings of an attempt before any byte of it reached the client.
ATTEMPTS = {
    Ending.CONNECT, Ending.UNSENT, Ending.RESET, Ending.INVALID, Ending.UNAVAILABLE, Ending.ERROR,
    Ending.NO_COPY, Ending.COPY_UNAVAILABLE, Ending.UNREADY,
}  # fmt: skip
# Endings that only a client, a route or the gateway causes.
NOT_OF_ENGINES = {
    Ending.ANSWERED, Ending.REFUSED, Ending.UNSUPPORTED, Ending.TOTAL_TIMEOUT, Ending.CLIENT_LEFT,
    Ending.CLIENT_STALLED, Ending.ROUTE_TIMEOUT, Ending.NO_ENGINE, Ending.SHUTDOWN, Ending.GATEWAY_FAILED,
}  # fmt: skip


def endings_with(condition):
    """The endings whose charge has a property."""
    return {ending for ending, charge in CHARGES.items() if condition(charge)}


def test_each_ending_has_a_charge():
    assert CHARGES.keys() == set(Ending)


def test_engines_are_not_charged_for_what_others_cause():
    charged = endings_with(
        lambda charge: charge.engine or charge.revision != "Never" or charge.version != "Never"
    )
    assert not charged & NOT_OF_ENGINES


def test_engines_are_charged_for_failures_of_the_service_alone():
    assert endings_with(lambda charge: charge.engine) <= endings_with(
        lambda charge: charge.service == "Failed"
    )


def test_attempts_are_retried_and_nothing_else():
    assert endings_with(lambda charge: charge.retry != "Never") == ATTEMPTS


def test_failures_that_the_request_may_have_caused_are_retried_once():
    """An engine got the whole request, and failed."""
    once = endings_with(lambda charge: charge.retry == "Once")
    assert once == {Ending.RESET, Ending.INVALID, Ending.ERROR}


def test_clients_may_repeat_requests_that_engines_did_not_accept():
    """The others may have been the cause."""
    assert endings_with(lambda charge: charge.may_client_repeat) == {
        Ending.UNAVAILABLE, Ending.COPY_UNAVAILABLE, Ending.NO_COPY, Ending.UNREADY,
    }  # fmt: skip


def test_copies_are_charged_as_requests_but_for_lost_connections():
    charged = endings_with(lambda charge: charge.revision != "Never")
    assert endings_with(lambda charge: charge.charges_copy) == charged - {Ending.CONNECT}


def test_versions_are_charged_as_revisions_but_for_connections_and_copies():
    different = endings_with(lambda charge: charge.version != charge.revision)
    assert {ending: CHARGES[ending].version for ending in different} == {
        Ending.CONNECT: "Never", Ending.COPY_UNAVAILABLE: "Blamed", Ending.ADAPTER_REFUSED: "Always",
    }  # fmt: skip


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


def test_endings_that_do_not_show_that_an_engine_could_answer():
    assert {ending for ending in Ending if not shows_answerable(ending)} == {Ending.UNSUPPORTED}


@pytest.mark.parametrize(
    ("has_response", "is_total", "is_of_route", "ending"),
    [
        (False, False, False, "no_first_byte"),
        (True, False, False, "silent"),
        # Before the first byte too: a whole answer may be as long as its client asks.
        (False, True, False, "total_timeout"),
        (True, True, False, "total_timeout"),
        (False, True, True, "route_timeout"),
        (True, True, True, "route_timeout"),
    ],
)
def test_ending_of_a_time_limit(has_response, is_total, is_of_route, ending):
    found = ending_of_timeout(has_response=has_response, is_total=is_total, is_of_route=is_of_route)
    assert found == ending


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
        # No side answered: engines of both failed, or one was not tried.
        ([(A, "error"), (C, "error")], [R1, R2], False, []),
        ([(A, "reset"), (B, "reset")], [R1, R2], False, []),
        ([(C, "error")], [R1, R2], False, []),
        # The service has one side.
        ([(A, "reset"), (B, "reset")], [R1], False, [A, B]),
        ([(C, "error")], [R2], False, [C]),
        ([(A, "connect")], [R1], False, [A]),
        ([(A, "error")], [], False, [A]),
        ([], [R1], False, []),
    ],
)
def test_revisions_charged_for_failed_attempts(failed, serving, is_answered, charged):
    attempts = [FailedAttempt(endpoint, Ending(ending)) for endpoint, ending in failed]
    found = find_blamed_endpoints(attempts, serving, is_answered=is_answered, allows_retries=True)
    assert found == charged


@pytest.mark.parametrize(
    ("failed", "serving", "is_answered", "charged"),
    [
        ([(C, "error")], [R1, R2], False, [C]),
        ([(A, "connect"), (C, "reset")], [R1, R2], False, [C]),
        # Connections are tried again all the same, and lost with any revision.
        ([(C, "connect")], [R1, R2], False, []),
        ([(C, "connect")], [R1, R2], True, []),
        ([(A, "connect")], [R1], False, [A]),
        ([(C, "unready")], [R1, R2], False, []),
    ],
)
def test_revisions_charged_for_failed_attempts_without_retries(
    failed, serving, is_answered, charged
):
    """No other side could answer, so that no revision would ever be charged."""
    attempts = [FailedAttempt(endpoint, Ending(ending)) for endpoint, ending in failed]
    found = find_blamed_endpoints(attempts, serving, is_answered=is_answered, allows_retries=False)
    assert found == charged


@pytest.mark.parametrize(
    ("ending", "is_answered", "allows_retries", "is_blamed"),
    [
        ("error", True, True, True),
        ("error", False, True, False),
        ("error", False, False, True),
        ("connect", True, True, False),
        ("connect", False, False, False),
        ("copy_unavailable", True, True, True),
        ("copy_unavailable", False, True, False),
        ("copy_unavailable", False, False, True),
        ("no_copy", True, True, False),
        ("no_copy", False, False, False),
    ],
)
def test_versions_charged_for_failed_attempts(ending, is_answered, allows_retries, is_blamed):
    found = is_version_blamed(
        Ending(ending), is_answered=is_answered, allows_retries=allows_retries
    )
    assert found == is_blamed


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
    assert find_pods_of_failed_sides(set(failed), [A, B, C], weights, exclude) == avoided
