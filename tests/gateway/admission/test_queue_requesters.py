"""The admission queue of a side with requests of several tenants and classes (virtual time)."""

import asyncio

import pytest
from tests.gateway.admission.queue_bench import A, spec

from penstock.core.admission.requester import Requester
from penstock.gateway.admission.queue import RequestRefused


def test_a_higher_class_goes_first(run):
    async def main(bench):
        first = await bench.reserve(tokens=900.0)
        low = await bench.start_reserving(tokens=800.0, by=Requester("low"))
        high = await bench.start_reserving(tokens=800.0, by=Requester("high", priority=1))
        first.release()
        reservation = await high
        await asyncio.sleep(0.2)
        assert not low.done()
        reservation.release()
        assert (await low).endpoint == A

    run(main, A)


def test_a_full_queue_gives_up_a_lower_class(run):
    async def main(bench):
        bench.give_prompts(A, 20_000.0)
        low = await bench.start_reserving(by=Requester("low"))
        high = await bench.start_reserving(by=Requester("high", priority=1))
        with pytest.raises(RequestRefused) as refused:
            await low
        assert (refused.value.reason, refused.value.retry_after_s) == ("displaced", 20)
        with pytest.raises(RequestRefused) as refused:
            await bench.reserve(by=Requester("low"))
        assert refused.value.reason == "queue_full"
        assert not high.done()
        high.cancel()
        await asyncio.gather(high, return_exceptions=True)
        assert bench.queue._grants == {}

    run(main, A, wanted=spec(max_queued=1))


@pytest.mark.parametrize(
    ("by", "wanted", "reason"),
    [
        (Requester("t", max_queued=0), spec(), "tenant_queue_full"),
        (Requester("t"), spec(max_queued=0), "queue_full"),
    ],
)
def test_where_none_may_wait_a_request_goes_at_once_or_is_refused(run, by, wanted, reason):
    async def main(bench):
        reservation = await bench.reserve(tokens=10.0, by=by)
        bench.give_prompts(A, 900.0)
        with pytest.raises(RequestRefused) as refused:
            await bench.reserve(by=by)
        assert refused.value.reason == reason
        assert (len(bench.queue._admission), bench.queue._grants, bench.num_waits) == (0, {}, 0)
        reservation.end(10.0)

    run(main, A, wanted=wanted)


def test_a_tenant_bounds_how_many_requests_wait_and_how_long(run):
    async def main(bench):
        bench.give_prompts(A, 900.0)
        tenant = Requester("t", max_queued=1, max_wait_s=2.0)
        first = await bench.start_reserving(by=tenant)
        with pytest.raises(RequestRefused) as refused:
            await bench.reserve(by=tenant)
        assert refused.value.reason == "tenant_queue_full"
        for _ in range(4):
            await asyncio.sleep(0.4)
            bench.give_prompts(A, 900.0)
        with pytest.raises(RequestRefused, match="no engine had room in time"):
            await first
        assert bench.elapsed_s == 2.0

    run(main, A)


def test_the_tokens_of_a_response_count_for_the_share_of_its_tenant(run):
    """Both tenants have sent a request. After the next of each, the one with the longer response waits."""

    async def main(bench):
        for tenant, tokens in (("a", 5_000.0), ("b", 10.0)):
            reservation = await bench.reserve(tokens=10.0, by=Requester(tenant))
            reservation.end(tokens)
        busy = await bench.reserve(tokens=900.0)
        waiting = [
            await bench.start_reserving(tokens=400.0, by=Requester(tenant)) for tenant in "aabb"
        ]
        busy.release()
        await asyncio.sleep(0.001)
        assert [task.done() for task in waiting] == [True, False, False, False]
        (await waiting[0]).release()
        await asyncio.sleep(0.001)
        assert [task.done() for task in waiting] == [True, False, True, False]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(main, A)
