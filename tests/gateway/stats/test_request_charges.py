"""Requests that end in every way count for whom the table of charges says, and abort no equal canary."""

import pytest
from benchmarks.gateway.request_charges import ENDINGS, is_aborted, measure


@pytest.mark.parametrize("ending", ENDINGS)
async def test_counts_of_requests_that_end_in_one_way(ending):
    counted, expected = await measure(ending, requests=8)
    assert counted == expected


async def test_client_that_sends_bad_requests_aborts_no_canary():
    assert not await is_aborted(seed=1, bad=40, good=40)
