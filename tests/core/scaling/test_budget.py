"""Shares of accelerators that do not suffice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.scaling.budget import Claim, share_accelerators

CASES = [
    ("enough for all", [("a", 3, 1, 0, 1), ("b", 2, 1, 0, 1)], 8, {"a": 3, "b": 2}),
    ("even shares", [("a", 6, 1, 0, 1), ("b", 6, 1, 0, 1)], 6, {"a": 3, "b": 3}),
    ("shares of what is wanted", [("a", 8, 0, 0, 1), ("b", 4, 0, 0, 1)], 6, {"a": 4, "b": 2}),
    ("priority first", [("a", 6, 1, 0, 1), ("b", 5, 1, 9, 1)], 6, {"a": 1, "b": 5}),
    ("minima before wants", [("a", 6, 2, 0, 1), ("b", 6, 1, 9, 1)], 6, {"a": 2, "b": 4}),
    ("minima by priority", [("a", 3, 3, 0, 1), ("b", 3, 3, 9, 1)], 4, {"a": 1, "b": 3}),
    ("whole replicas", [("a", 2, 1, 0, 4), ("b", 3, 0, 0, 1)], 6, {"a": 1, "b": 2}),
    ("what is left over", [("a", 2, 0, 9, 4), ("b", 3, 0, 0, 1)], 7, {"a": 1, "b": 3}),
    ("on the CPU", [("a", 9, 1, 0, 0), ("b", 2, 1, 0, 1)], 1, {"a": 9, "b": 1}),
    ("nothing there", [("a", 2, 1, 0, 1)], 0, {"a": 0}),
]


@pytest.mark.parametrize(("name", "claims", "accelerators", "expected"), CASES, ids=lambda v: v)
def test_shares(
    name: str,
    claims: list[tuple[str, int, int, int, int]],
    accelerators: int,
    expected: dict[str, int],
) -> None:
    grants = share_accelerators([Claim(*claim) for claim in claims], accelerators)
    assert {service: grant.replicas for service, grant in grants.items()} == expected
    for service, wanted, *_ in claims:
        assert (grants[service].reason == "") == (expected[service] == wanted)


def test_a_short_grant_says_who_has_the_rest() -> None:
    grants = share_accelerators([Claim("a", 6, 1), Claim("b", 5, 1, priority=9)], 6)
    assert grants["a"].reason == (
        "1 of 6 wanted replicas: there are 6 accelerators, shared with b with 5"
    )


claims = st.lists(
    st.builds(
        Claim,
        service=st.text("abcdef", min_size=1, max_size=3),
        wanted=st.integers(0, 20),
        least=st.integers(0, 5),
        priority=st.integers(-1, 2),
        accelerators=st.integers(0, 8),
    ),
    unique_by=lambda claim: claim.service,
    max_size=6,
)


@given(claims, st.integers(0, 60))
def test_no_share_is_too_large_and_none_is_left_that_somebody_could_use(
    wanted: list[Claim], accelerators: int
) -> None:
    grants = share_accelerators(wanted, accelerators)
    used = sum(grants[c.service].replicas * c.accelerators for c in wanted)
    assert used <= accelerators
    for claim in wanted:
        replicas = grants[claim.service].replicas
        assert 0 <= replicas <= claim.wanted
        if replicas < claim.wanted:
            assert claim.accelerators > accelerators - used
            # A lower priority gets no more than its minimum, unless it takes smaller replicas.
            for other in wanted:
                if other.priority < claim.priority and other.accelerators >= claim.accelerators:
                    assert grants[other.service].replicas <= other.least
    assert grants == share_accelerators(list(reversed(wanted)), accelerators)
