"""Which connections a new one replaces at the limit."""

import pytest

from penstock.gateway.limits.connection_limit import ConnectionLimit, Replaceable


class Connection:
    """A connection that notes whether it was reset."""

    def __init__(self, name):
        self.name = name
        self.is_reset = False

    def abort(self):
        self.is_reset = True

    def __repr__(self):
        return self.name


@pytest.fixture
def three():
    """Three connections with requests, and the limit that they fill."""
    limit = ConnectionLimit(3)
    connections = [Connection(name) for name in "abc"]
    assert [limit.add(each) for each in connections] == [True] * 3
    return limit, connections


def test_connection_is_refused_if_none_may_be_replaced(three):
    limit, connections = three
    refused = Connection("d")
    assert not limit.add(refused)
    assert not any(each.is_reset for each in connections)
    limit.remove(refused)
    limit.remove(connections[0])
    assert limit.add(Connection("e"))


def test_order_of_replacement(three):
    limit, (first, second, third) = three
    limit.mark(first, Replaceable.IDLE)
    limit.mark(second, Replaceable.UNREAD)
    limit.mark(third, Replaceable.LINGERING)
    for replaced in (third, second, first):
        assert not replaced.is_reset
        assert limit.add(Connection("new"))
        assert replaced.is_reset
    assert not limit.add(Connection("refused"))


def test_refused_connection_is_replaced_by_the_next(three):
    """Otherwise those that read their refusal slowly would add up."""
    limit, _ = three
    before = Connection("before")
    for number in range(5):
        refused = Connection(f"refused-{number}")
        assert not limit.add(refused)
        assert before.is_reset == bool(number)
        limit.mark(refused, Replaceable.LINGERING)
        before = refused


def test_removed_connection_is_not_replaced(three):
    limit, (first, *_) = three
    limit.mark(first, Replaceable.IDLE)
    limit.remove(first)
    limit.remove(first)
    assert limit.add(Connection("new"))
    assert not limit.add(Connection("refused"))
    assert not first.is_reset


@pytest.mark.parametrize("reason", list(Replaceable))
def test_removed_connection_is_not_marked(three, reason):
    """Its request may end after the connection was lost."""
    limit, (first, *_) = three
    limit.remove(first)
    limit.mark(first, reason)
    assert first not in limit._replaceable[reason]
    assert limit.add(Connection("new"))
    assert not limit.add(Connection("refused"))
    assert not first.is_reset


def test_connection_to_which_the_reason_applies_no_longer_is_not_replaced(three):
    limit, (first, second, _) = three
    for each in (first, second):
        limit.mark(each, Replaceable.IDLE)
    limit.mark(first, Replaceable.IDLE, applies=False)
    assert limit.add(Connection("new"))
    assert (first.is_reset, second.is_reset) == (False, True)
