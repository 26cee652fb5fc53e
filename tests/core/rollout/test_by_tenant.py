"""Evidence by tenant, as the status shows it."""

from dataclasses import replace

import pytest

from penstock.core.canary.arm import UNMEASURED, ArmCounter
from penstock.core.canary.tenants import OTHERS
from penstock.core.rollout.by_tenant import compare_by_tenant


def arm(**requests):
    """Seconds to the first token of each request, by tenant; None of one that failed."""
    count = ArmCounter()
    for name, seconds in requests.items():
        tenant = OTHERS if name == "rest" else name
        for each in seconds:
            if each is None:
                count.record_failure(tenant)
                continue
            answer = replace(UNMEASURED, output_tokens=2, ttft_s=each, tpot_s=each / 10)
            count.record_answer(answer, tenant)
    return count.snapshot()


def test_the_largest_first_and_all_others_last():
    canary = arm(small=[0.1], large=[0.2, 0.8, None], rest=[0.1] * 9)
    rows = list(compare_by_tenant(canary, arm(large=[0.1, 0.4])))
    assert [row.name for row in rows] == ["large", "small", OTHERS]
    large, small, _ = rows
    assert large.ttft.effect == pytest.approx(1.0)
    assert large.tpot.effect == pytest.approx(1.0)
    assert (large.canary.requests, large.canary.events, large.control.events) == (3, 1, 0)
    assert (small.ttft.effect, small.control.requests) == (None, 0)
