"""A failing engine of five is ejected, hidden from clients, and used again when it recovers."""

import pytest
from benchmarks.gateway.failing_engines import FAULTS, measure

from penstock.core.spec.objectives import Objectives

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("objectives", [None, Objectives(60.0, 1.0)])
@pytest.mark.parametrize("fault", FAULTS)
async def test_one_failing_engine_of_five_is_hidden_from_clients(fault, objectives):
    found = await measure(fault, requests=200, clients=16, seed=1, objectives=objectives)
    assert found.errors <= 0.02 * found.requests
    assert found.errors_after == 0
    assert 3 <= found.failed_attempts <= 0.1 * found.requests
    assert min(found.sound_requests) > 0.15 * found.requests
    assert found.recovered_share > 0.1
