"""Leases of limits at several gateways with one store, which is counted here in a dictionary."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.core.tenants.lease import PIECE_S, Demand, Lease
from penstock.core.tenants.limits import Usage
from penstock.core.tenants.quota import Incomplete, Reservation, Shortage, TenantQuota, TooLarge
from penstock.core.tenants.slots import SlotLease
from penstock.core.tenants.tenant import FailureMode, Tenant, UsageLimit

REQUESTS = UsageLimit("requests", "Requests", 10, "Minute")
TOKENS = UsageLimit("tokens", "Tokens", 1000, "Minute")
DAILY = UsageLimit("daily", "Tokens", 5000, "Day")
OF_CHAT = UsageLimit("chat", "Requests", 2, "Hour", "chat")
ONE = Usage(1, 60, 40)


def quota(*limits: UsageLimit, failure_mode: FailureMode = "Reject") -> TenantQuota:
    return TenantQuota(Tenant("team", 1, limits=limits, failure_mode=failure_mode), 0)


def give(lease: Lease, amount: int, total: int | None = None, now_s: float = 0) -> None:
    lease.take(amount, amount if total is None else total, now_s)


def test_a_request_reserves_of_all_limits_or_of_none() -> None:
    found = quota(REQUESTS, TOKENS)
    requests, tokens = found.leases
    give(requests, 5)
    assert found.reserve("chat", ONE, 1, None) == Incomplete([(tokens, 100)])
    assert (requests.used, tokens.used) == (0, 0)
    give(tokens, 100)
    assert isinstance(found.reserve("chat", ONE, 1, None), Reservation)
    assert (requests.used, tokens.used) == (1, 100)


def test_a_limit_of_a_model_counts_no_other() -> None:
    found = quota(OF_CHAT)
    assert isinstance(found.reserve("coder", ONE, 1, None), Reservation)
    assert isinstance(found.reserve("chat", ONE, 1, None), Incomplete)


def test_an_exhausted_limit_tells_when_its_window_ends() -> None:
    found = quota(TOKENS, DAILY)
    minute, day = found.leases
    minute.take(0, 950, 10)
    day.take(0, 5000, 10)
    assert found.reserve("chat", ONE, 10.05, None) == Shortage(DAILY, 86_390, (TOKENS,))


def test_the_stores_count_is_not_taken_for_the_present_one_for_long() -> None:
    found = quota(TOKENS)
    found.leases[0].take(0, 1000, 10)
    assert isinstance(found.reserve("chat", ONE, 10.05, None), Shortage)
    assert isinstance(found.reserve("chat", ONE, 10.2, None), Incomplete)


def test_a_request_above_the_whole_limit_is_told_so() -> None:
    assert quota(TOKENS).reserve("chat", Usage(1, 900, 101), 1, None) == TooLarge(TOKENS, 1001)


def test_the_difference_is_settled_once() -> None:
    found = quota(TOKENS)
    lease = found.leases[0]
    give(lease, 500)
    reservation = found.reserve("chat", ONE, 1, None)
    assert isinstance(reservation, Reservation)
    reservation.settle(Usage(1, 70, 10))
    reservation.cancel()
    assert (lease.used, lease.available) == (80, 420)


@pytest.mark.parametrize(("used", "charged"), [(Usage(1, 60, 10), 0), (Usage(1, 60, 100), 60)])
def test_only_an_excess_is_charged_after_the_end_of_the_window(used: Usage, charged: int) -> None:
    found = quota(TOKENS)
    lease = found.leases[0]
    give(lease, 500)
    reservation = found.reserve("chat", ONE, 1, None)
    lease.enter(60)
    assert isinstance(reservation, Reservation)
    reservation.settle(used)
    assert (lease.granted, lease.used) == (0, charged)


@pytest.mark.parametrize(("mode", "admits"), [("Reject", False), ("Admit", True)])
def test_without_the_store_a_gateway_has_its_share_of_what_was_left(
    mode: FailureMode, admits: bool
) -> None:
    found = quota(TOKENS, failure_mode=mode)
    lease = found.leases[0]
    give(lease, 50, total=200)
    # its piece of 50, and a quarter of the 800 that were left
    assert all(isinstance(found.reserve("chat", ONE, 1, 4), Reservation) for _ in range(2))
    assert lease.available == 50
    beyond = found.reserve("chat", ONE, 1, 4)
    assert isinstance(beyond, Reservation) if admits else beyond == Shortage(TOKENS, 59)


def test_a_window_that_begins_without_the_store_has_a_whole_share() -> None:
    found = quota(TOKENS)
    give(found.leases[0], 50, total=1000)
    assert isinstance(found.reserve("chat", ONE, 60, 4), Reservation)
    assert found.leases[0].available == 150


def test_a_share_follows_the_number_of_gateways_and_the_limit() -> None:
    found = quota(TOKENS)
    assert isinstance(found.reserve("chat", ONE, 1, 1), Reservation)
    lease = found.leases[0]
    assert lease.available == 900, "alone it has all of the 1000"
    found.reserve("chat", ONE, 1, 4)
    assert lease.available == 50, "a quarter of the 1000, of which 200 are used"
    found.reserve("chat", ONE, 1, 2)
    assert lease.available == 200, "half of the 1000, of which 300 are used"
    lease.limit = replace(TOKENS, limit=2000)
    found.reserve("chat", ONE, 1, 2)
    assert lease.available == 600, "half of the 2000, of which 400 are used"


def test_what_was_used_without_the_store_is_added_when_it_is_back() -> None:
    found = quota(TOKENS)
    lease = found.leases[0]
    for _ in range(2):
        found.reserve("chat", ONE, 1, 4)
    assert lease.correction() == 200
    assert lease.available == 50, "the share grows by what is only counted elsewhere"
    lease.go_shared()
    assert (lease.correction(), lease.available, lease.total) == (0, 0, 200)


def test_an_idle_gateway_gives_its_piece_back() -> None:
    lease = Lease.of(DAILY, 0)
    give(lease, 300)
    lease.reserve(100)
    assert lease.demand(1) is None
    assert lease.rate == 0.0, "the first interval has no beginning"
    lease.reserve(100)
    lease.demand(2)
    assert lease.rate == 50
    assert lease.correction() == -75, "100 are left, of which half a second of use is kept"
    assert lease.available == 50 * PIECE_S


def test_demand_is_for_those_who_wait_and_for_the_next_half_second() -> None:
    lease = Lease.of(TOKENS, 0)
    lease.demand(0)
    give(lease, 100)
    lease.reserve(100)
    lease.needs += [70, 30]
    assert lease.demand(1) == Demand(least=30, waiting=100, wanted=125)


def test_a_limit_of_another_size_keeps_its_lease_and_one_of_another_window_does_not() -> None:
    found = quota(REQUESTS, TOKENS)
    requests, tokens = found.leases
    larger = UsageLimit("tokens", "Tokens", 2000, "Minute")
    hourly = UsageLimit("requests", "Requests", 10, "Hour")
    assert found.update(Tenant("team", 2, limits=(hourly, larger)), 1) == [requests]
    assert found.leases[1] is tokens
    assert [each.limit for each in found.leases] == [hourly, larger]


def test_the_output_of_a_request_without_a_bound_is_assumed_from_those_before() -> None:
    found = quota(TOKENS)
    assert found.assume_output_tokens("chat", 60) == 256
    for _ in range(200):
        found.observe_output_tokens("chat", 30)
    assert found.assume_output_tokens("chat", 60) == 31
    assert found.assume_output_tokens("coder", 900) == 100, "no more than the limit allows at all"


def test_the_tightest_limit_is_the_one_with_the_least_left() -> None:
    found = quota(REQUESTS, TOKENS, DAILY)
    requests, minute, day = found.leases
    day.take(0, 4500, 0)
    assert found.tightest("chat") == (requests, day)
    minute.take(0, 700, 0)
    assert found.tightest("chat") == (requests, minute)
    assert quota(OF_CHAT).tightest("coder") == (None, None)


def test_slots_of_a_gateway_without_the_store_are_its_share() -> None:
    slots = SlotLease(9)
    assert not slots.has_room(None)
    assert slots.has_room(4)
    slots.start()
    slots.start()
    assert not slots.has_room(4)


def test_a_limit_that_the_store_cannot_count_is_shared_alone() -> None:
    found = quota(TOKENS, REQUESTS)
    tokens, requests = found.leases
    give(requests, 10)
    tokens.num_unstored = 4
    assert [isinstance(found.reserve("chat", ONE, 1, None), Reservation) for _ in range(3)] == [
        True, True, False,
    ]  # fmt: skip
    assert not requests.is_local
    assert (tokens.is_to_report, tokens.is_idle) == (True, False)
    give(tokens, 0, total=200)
    assert isinstance(found.reserve("chat", ONE, 1, None), Incomplete)
    assert not tokens.is_local


@pytest.mark.parametrize(
    ("growth", "now_s", "available"), [(0, 1, 25), (80, 1.5, 15), (80, 9, 5), (800, 9, 0)]
)
def test_a_share_is_of_what_others_have_left(growth: float, now_s: float, available: int) -> None:
    lease = Lease.of(TOKENS, 0)
    lease.take(0, 200, 0.5)
    lease.note_total(900, growth, 1)
    lease.go_local(4, now_s)
    assert lease.available == available


def test_the_part_of_a_limit_that_is_used() -> None:
    lease = Lease.of(TOKENS, 0)
    assert lease.used_ratio == 0
    lease.take(100, 400, 1)
    assert lease.used_ratio == 0.4
    lease.go_local(4, 1)
    lease.reserve(125)
    assert lease.used_ratio == 0.5, "of 100 and a quarter of the 600 that were left"
    lease.limit = replace(TOKENS, limit=100)
    lease.go_local(4, 1)
    assert lease.used_ratio == 1


def test_slots_are_shared_by_what_was_free_until_requests_of_others_have_ended() -> None:
    slots = SlotLease(8)
    slots.note_total(4)
    room = [slots.has_room(4, is_recent=True)]
    slots.start()
    room += [slots.has_room(4, is_recent=True), slots.has_room(4)]
    slots.start()
    room.append(slots.has_room(4))
    assert room == [True, False, True, False]
    slots.take(3, 8)
    assert slots.has_room(None)
    slots.note_total(2)
    assert slots.total == 8, "its own count is newer"
    slots.num_unstored = 2
    assert (slots.is_to_report, slots.has_room(None)) == (True, True)


def test_slots_that_are_not_needed_are_given_up() -> None:
    slots = SlotLease(9)
    slots.take(6, 6)  # more than half: others may lack some
    slots.start()
    assert slots.is_to_report
    slots.demand(0)
    assert slots.held == 2
    slots.end()
    slots.demand(0)
    assert slots.held == 0
    assert not slots.is_to_report


def test_slots_that_were_in_use_lately_are_kept_while_there_are_enough() -> None:
    slots = SlotLease(9)
    slots.take(4, 4)
    for _ in range(3):
        slots.start()
    slots.demand(0)
    for _ in range(3):
        slots.end()
    slots.demand(0.9)
    assert slots.held == 3
    assert slots.has_room(None)
    slots.demand(1)
    assert slots.held == 3
    slots.demand(2)
    assert slots.held == 0
    assert not slots.is_to_report


class Gateways(RuleBasedStateMachine):
    """Three gateways with one store, which is asked, fails and answers in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = UsageLimit("tokens", "Tokens", 500, "Minute")
        self.now_s = 0.0
        self.count = 0
        self.gateways = [quota(self.limit) for _ in range(3)]
        self.open: list[Reservation] = []
        self.admitted = self.settled = 0

    def lease(self, gateway: int) -> Lease:
        return self.gateways[gateway].leases[0]

    @rule(gateway=st.integers(0, 2), amount=st.integers(1, 200))
    def reserve(self, gateway: int, amount: int) -> None:
        found = self.gateways[gateway].reserve("chat", Usage(1, amount), self.now_s, None)
        if isinstance(found, Reservation):
            self.open.append(found)
            self.admitted += amount
        elif isinstance(found, Incomplete):
            self.lease(gateway).needs.append(amount)

    @rule(gateway=st.integers(0, 2))
    def call_the_store(self, gateway: int) -> None:
        lease = self.lease(gateway)
        self.count += lease.correction()
        demand, free = lease.demand(self.now_s), self.limit.limit - self.count
        lease.needs.clear()
        if demand is not None and demand.least <= free:
            granted = max(min(demand.waiting, free), min(demand.wanted, free // 12))
            self.count += granted
            lease.take(granted, self.count, self.now_s)

    @rule(data=st.data())
    def end_a_request(self, data: st.DataObject) -> None:
        if not self.open:
            return
        reservation = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        used = data.draw(st.integers(0, reservation.usage.prompt_tokens))
        reservation.settle(Usage(1, used))
        self.admitted += used - reservation.usage.prompt_tokens

    @rule()
    def pass_time(self) -> None:
        self.now_s = min(59.0, self.now_s + 0.3)

    @invariant()
    def never_more_than_the_limit(self) -> None:
        assert self.admitted <= self.count <= self.limit.limit
        assert sum(self.lease(each).used for each in range(3)) == self.admitted
        for each in range(3):
            self.lease(each).check()

    def teardown(self) -> None:
        for each in self.open:
            each.cancel()
        for gateway, _ in itertools.product(range(3), range(8)):
            lease = self.lease(gateway)
            self.now_s += 1
            lease.demand(self.now_s)
            self.count += lease.correction()
        used = sum(self.lease(each).used for each in range(3))
        kept = sum(self.lease(each).granted for each in range(3))
        assert self.count == kept, "an amount belongs to nobody"
        assert used <= kept


Gateways.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGateways = Gateways.TestCase
