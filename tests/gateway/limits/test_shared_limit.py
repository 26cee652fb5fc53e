"""The rule by which services and their namespaces share a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.limits.shared_limit import ARRIVING, Allocation, SharedLimit


def fill(limit: SharedLimit, owner: str) -> int:
    """Take one at a time until the owner is refused. Returns how many it got."""
    num_taken = 0
    while limit.take(owner, 1):
        num_taken += 1
    return num_taken


def test_each_namespace_leaves_as_much_to_the_next_ones():
    limit = SharedLimit(64)
    assert [fill(limit, f"{name}/chat") for name in "abcd"] == [28, 15, 8, 5]
    assert limit.held == 56


def test_namespaces_with_equal_demand_come_to_hold_the_same():
    limit = SharedLimit(90)
    for owner in ("", "a/chat"):
        fill(limit, owner)
    for _ in range(90):  # requests end, and others begin
        limit.give_back("", 1)
        limit.take("a/chat", 1)
        limit.take("", 1)
    assert abs(limit.bound("") - 30) <= 3
    assert limit.held <= 60


def test_services_of_a_namespace_share_what_it_may_hold():
    limit = SharedLimit(128)
    assert [fill(limit, f"a/{name}") for name in "xyz"] == [56, 7, 1]
    assert limit.held == 64
    assert fill(limit, "b/x") == 28


def test_arriving_requests_count_as_one_namespace():
    limit = SharedLimit(100)
    assert fill(limit, ARRIVING) == 50
    assert fill(limit, "a/chat") == 21


@pytest.mark.parametrize("owner", [ARRIVING, "a/chat"])
def test_limit_of_one_can_be_held(owner):
    limit = SharedLimit(1)
    assert fill(limit, owner) == 1
    assert not limit.take("b/chat", 1)
    limit.give_back(owner, 1)
    assert limit.take("b/chat", 1)


def test_nothing_more_is_always_granted():
    limit = SharedLimit(1)
    assert limit.take("a/chat", 1)
    assert limit.take("b/chat", 0)
    assert limit.held == 1


def test_allocation_counts_for_its_owner():
    limit = SharedLimit(64)
    allocation = Allocation(limit, ARRIVING)
    assert allocation.take(20)
    assert allocation.take(12)
    assert not allocation.take(1)
    assert allocation.amount == 32
    assert not allocation.assign("a/chat")  # a service may hold 28
    assert (allocation.amount, limit.held) == (0, 0)
    assert allocation.take(28)
    assert allocation.assign(ARRIVING)
    assert allocation.take(4)
    allocation.release()
    allocation.release()  # once more does nothing
    assert (allocation.amount, limit.held) == (0, 0)


OWNERS = [ARRIVING, *(f"{namespace}/{name}" for namespace in "abc" for name in "xy")]
STEPS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(OWNERS), st.integers(0, 9)), max_size=200
)


@given(st.integers(1, 400), STEPS)
def test_one_that_holds_nothing_is_not_refused(limit_amount, steps):
    """Takes, moves and releases by all owners, in any order."""
    limit = SharedLimit(limit_amount)
    allocations = [Allocation(limit, ARRIVING) for _ in range(20)]
    held = dict.fromkeys(OWNERS, 0)
    owners = [ARRIVING] * len(allocations)
    for number, owner, amount in steps:
        index = number // 2
        if index == len(allocations):
            continue
        allocation, old = allocations[index], owners[index]
        held[old] -= allocation.amount
        if number % 2:
            allocation.assign(owner)
            owners[index] = owner
        elif amount:
            allocation.take(amount)
        else:
            allocation.release()
        held[owners[index]] += allocation.amount
        assert min(held.values()) >= 0
        assert limit.held == sum(held.values()) <= limit_amount
        busy = {each.partition("/")[0] for each, count in held.items() if count}
        for wanted in (1, 7):
            if 2 ** (len(busy) + 2) * wanted <= limit_amount:
                assert limit.take("new/chat", wanted)
                limit.give_back("new/chat", wanted)
    for allocation in allocations:
        allocation.release()
    assert limit.held == 0
    unused = SharedLimit(limit_amount)
    assert all(limit.bound(owner) == unused.bound(owner) for owner in OWNERS)
