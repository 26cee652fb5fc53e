"""The rule by which owners share a limit."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock_engine.http.fair_limit import FairLimit


def fill(limit: FairLimit, owner: str) -> int:
    """Take one at a time until the owner is refused. Returns how many it got."""
    num_taken = 0
    while limit.take(owner, 1):
        num_taken += 1
    return num_taken


def test_each_owner_gets_half_of_what_is_left_and_one_at_least() -> None:
    limit = FairLimit(64)
    assert [fill(limit, owner) for owner in "abcdefgh"] == [32, 16, 8, 4, 2, 1, 1, 0]
    assert limit.held == 64


def test_two_owners_tend_to_a_third_each() -> None:
    limit = FairLimit(90)
    assert [fill(limit, owner) for owner in "ab"] == [45, 22]
    for _ in range(45):  # what the first one held ends, and it wants as much again
        limit.give_back("a", 1)
        fill(limit, "b")
        fill(limit, "a")
    assert [limit.held_by(owner) for owner in "ab"] == [30, 30]


def test_large_amount_is_bounded_like_small_ones() -> None:
    limit = FairLimit(16)
    assert not limit.take("a", 9)
    assert limit.held == 0
    assert limit.take("a", 8)
    assert not limit.take("b", 5)
    assert limit.take("b", 4)


STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-9, 9)), max_size=200)


@given(st.integers(1, 400), STEPS)
def test_what_is_taken_leaves_as_much_to_others(size: int, steps: list[tuple[str, int]]) -> None:
    limit = FairLimit(size)
    held: Counter[str] = Counter()
    for owner, amount in steps:
        if amount > 0:
            if limit.take(owner, amount):
                held[owner] += amount
                assert held[owner] <= max(1, size - held.total())
        else:
            given_back = min(-amount, held[owner])
            limit.give_back(owner, given_back)
            held[owner] -= given_back
        assert limit.held == held.total() <= size
        assert all(limit.held_by(each) == held[each] for each in "abcd")
        wanted = size >> (sum(map(bool, held.values())) + 2)
        if wanted:
            assert limit.bound("new") >= wanted
