"""A small part of benchmarks/gateway/limits.py: limits that one party fills."""

import pytest
from benchmarks.gateway.limits import cases, measure

pytestmark = pytest.mark.slow

SMALL = {
    "max_connections": 96, "max_held_body_bytes": 4 << 20, "max_mirrored": 4, "max_waiting": 8,
    "max_held_answer_bytes": 1 << 20, "body_bytes": 262_000,
}  # fmt: skip
CASES = [case for case in cases(SMALL) if case.value != 1]


@pytest.mark.parametrize("case", CASES, ids=[f"{c.limit} by {c.party}" for c in CASES])
async def test_others_are_served_while_one_party_fills_a_limit(case):
    outcome = await measure(case, 24)
    assert outcome.statuses == {200: 24}
    assert outcome.probes_lost == 0


LEAST = [case for case in cases(SMALL) if case.value == 1]


@pytest.mark.parametrize("case", LEAST, ids=[f"{c.limit} by {c.party}" for c in LEAST])
async def test_probes_are_answered_at_the_least_limit(case):
    outcome = await measure(case, 12)
    assert outcome.probes_lost == 0
    assert outcome.statuses[500] == 0
