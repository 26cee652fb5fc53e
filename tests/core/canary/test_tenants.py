"""Tenants are counted separately up to a limit, and each request is counted once."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.canary import tenants
from penstock.core.canary.arm import UNMEASURED, ArmCounter
from penstock.core.canary.tenants import MAX_TENANTS, OTHERS, TenantCounts

names = st.sampled_from([f"t{i}" for i in range(2 * MAX_TENANTS)])
counted = st.lists(st.tuples(names, st.booleans()), max_size=200)


def arm_of(requests):
    count = ArmCounter()
    for name, fails in requests:
        if fails:
            count.record_failure(name)
            continue
        count.record_answer(replace(UNMEASURED, output_tokens=3, ttft_s=0.2, tpot_s=0.01), name)
    return count.snapshot()


def total(found):
    result = TenantCounts()
    for each in found.values():
        result = result.plus(each)
    return result


@given(counted)
def test_every_request_is_one_tenants_and_there_are_only_so_many(requests):
    arm = arm_of(requests)
    assert len(arm.tenants) <= MAX_TENANTS
    everybody = total(arm.tenants)
    assert (everybody.requests, everybody.errors) == (arm.requests, arm.errors)
    assert everybody.ttft.n == sum(m.n for m in arm.ttft)


@given(counted, counted)
def test_what_was_added_is_what_came_since(before, gained):
    first, more = arm_of(before).tenants, arm_of(gained).tenants
    both = tenants.plus(first, more)
    came = tenants.increase_over(both, first)
    assert {name: each.requests for name, each in came.items()} == {
        name: each.requests for name, each in more.items()
    }


@given(counted, counted)
def test_folding_keeps_the_largest_and_loses_nothing(left, right):
    both = tenants.plus(arm_of(left).tenants, arm_of(right).tenants)
    fold_tenants = tenants.fold_tenants(both)
    assert len(fold_tenants) <= MAX_TENANTS
    assert total(fold_tenants).requests == total(both).requests
    kept = [each.requests for name, each in fold_tenants.items() if name != OTHERS]
    lost = [both[name].requests for name in both.keys() - fold_tenants]
    assert min(kept, default=0) >= max(lost, default=0)


def test_those_with_the_most_requests_are_kept():
    """The tenants with the fewest requests beyond MAX_TENANTS are added to OTHERS."""
    many = {f"t{n:02}": TenantCounts(requests=100 - n, errors=n) for n in range(MAX_TENANTS)}
    assert tenants.fold_tenants(many) == many
    fold_tenants = tenants.fold_tenants(many | {OTHERS: TenantCounts(requests=1000, errors=7)})
    kept = [f"t{n:02}" for n in range(MAX_TENANTS - 1)]
    assert sorted(fold_tenants) == sorted([*kept, OTHERS])
    fewest = MAX_TENANTS - 1
    assert fold_tenants[OTHERS] == TenantCounts(requests=1000 + 100 - fewest, errors=7 + fewest)
    # Tenants with equally many requests are ordered by name.
    alike = {f"t{n:02}": TenantCounts(requests=1) for n in range(2 * MAX_TENANTS)}
    assert sorted(tenants.fold_tenants(alike)) == sorted([*kept, OTHERS])


def test_without_a_tenant_nothing_is_told_apart():
    assert arm_of([(None, False), (None, True)]).tenants == {}
