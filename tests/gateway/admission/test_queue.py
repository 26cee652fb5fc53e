"""The admission queue of a side: which request goes where and when (virtual time)."""

import asyncio

import pytest
from tests.gateway.admission.queue_bench import MODEL, A, B, C, spec
from tests.support.engine_models import model_of

from penstock.gateway.admission.queue import RequestRefused


def test_request_that_fits_does_not_wait(run):
    async def main(bench):
        reservation = await bench.reserve()
        assert reservation.endpoint == A
        assert (bench.load(A).prefill_tokens, bench.load(A).kv_tokens) == (100.0, 300.0)
        assert (bench.num_waits, bench.elapsed_s) == (0, 0.0)
        assert len(bench.queue._admission) == 0
        assert bench.queue._grants == {}
        assert bench.queue._timer is None

    run(main, A)


def test_endpoint_with_the_fewest_kv_tokens_is_chosen(run):
    async def main(bench):
        bench.load(A).kv_tokens, bench.load(B).kv_tokens, bench.load(C).kv_tokens = 500, 200, 300
        reservations = [await bench.reserve(tokens=1.0, kv_tokens=150.0) for _ in range(2)]
        assert [reservation.endpoint for reservation in reservations] == [B, C]
        assert bench.load(B).kv_tokens == 350

    run(main, A, B, C)


def test_equally_loaded_endpoints_are_chosen_at_random(run):
    async def main(bench):
        seen = set()
        for _ in range(60):
            reservation = await bench.reserve()
            seen.add(reservation.endpoint)
            reservation.release()
        assert seen == {A, B}

    run(main, A, B)


def test_ejected_endpoints_are_avoided_while_there_are_others(run):
    async def main(bench):
        bench.ejected = {A.pod}
        for _ in range(20):
            reservation = await bench.reserve()
            assert reservation.endpoint == B
            reservation.release()
        assert bench.ejected_calls[-1] == ([A, B], bench.loop.time())
        bench.ejected = {A.pod, B.pod}
        assert await bench.reserve() is not None

    run(main, A, B)


def test_request_waits_until_its_first_token_is_predicted_in_time(run):
    """900 tokens fit into 1 s with a margin of a tenth; the second prompt waits for the first one's end."""

    async def main(bench):
        first = await bench.reserve(tokens=600.0)
        second = await bench.start_reserving(tokens=305.0)
        assert (await bench.start_reserving(tokens=295.0)).done()
        assert not second.done()
        assert (await bench.start_reserving(tokens=500.0, arrived_s=bench.loop.time() + 5.0)).done()
        await asyncio.sleep(0.5)
        bench.load(A).prefill_tokens -= 795.0  # those of the other two requests
        first.first_token_received(bench.loop.time())
        assert await second is not None
        assert (bench.num_waits, bench.elapsed_s) == (1, 0.5)

    run(main, A)


def test_late_request_goes_when_the_endpoint_is_idle(run):
    async def main(bench):
        first = await bench.reserve(tokens=900.0)
        late = await bench.start_reserving(tokens=900.0)
        await asyncio.sleep(2.0)
        assert not late.done()
        first.release()
        assert (await late).endpoint == A
        assert bench.elapsed_s == 2.0

    run(main, A)


def test_queue_is_rechecked_every_100_ms(run):
    """The end of an ejection is no event."""

    async def main(bench):
        bench.load(A).kv_tokens = 5e4
        bench.give_prompts(A, 5e4)
        bench.ejected = {B.pod}
        task = await bench.start_reserving()
        again = await bench.start_reserving()
        await asyncio.sleep(0.02)
        bench.ejected = set()
        reservations = [await task, await again]
        assert [reservation.endpoint for reservation in reservations] == [B, B]
        assert bench.elapsed_s == 0.1
        num_checks = len(bench.ejected_calls)
        await asyncio.sleep(1.0)
        assert len(bench.ejected_calls) == num_checks  # no request waits
        assert bench.queue._timer is None

    run(main, A, B)


def test_queue_is_rechecked_as_long_as_a_request_waits(run):
    async def main(bench):
        bench.give_prompts(A, 5e4)
        task = await bench.start_reserving()
        before = len(bench.ejected_calls)
        await asyncio.sleep(0.95)
        assert len(bench.ejected_calls) - before == 9
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main, A)


def test_queue_full_after_the_wait_limit(run):
    async def main(bench):
        bench.give_prompts(A, 7_500.0)
        task = await bench.start_reserving(tokens=900.0, wait_s=3.0)
        with pytest.raises(RequestRefused) as full:
            await task
        assert (str(full.value), full.value.retry_after_s) == ("no engine had room in time", 8)
        assert (bench.num_waits, bench.elapsed_s) == (1, 3.0)
        assert len(bench.queue._admission) == 0
        assert bench.queue._grants == {}

    run(main, A)


def test_queue_length_is_bounded(run):
    async def main(bench):
        bench.give_prompts(A, 20_000.0)
        waiting = [await bench.start_reserving(tokens=900.0) for _ in range(2)]
        with pytest.raises(RequestRefused) as full:
            await bench.reserve()
        error = str(full.value), full.value.retry_after_s
        assert error == ("too many requests wait for an engine", 22)  # 21,800 tokens
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(bench.queue._admission) == 0

    run(main, A, wanted=spec(max_queued=2))


def test_queue_without_endpoints_releases_all_requests(run):
    async def main(bench):
        bench.give_prompts(A, 5e4)
        tasks = [await bench.start_reserving() for _ in range(2)]
        bench.queue.update(spec(), [])
        assert [await task for task in tasks] == [None, None]
        bench.queue.close()

    run(main, A)


def test_new_endpoint_takes_requests_that_are_already_late(run):
    async def main(bench):
        bench.give_prompts(A, 5e4)
        task = await bench.start_reserving(tokens=900.0)
        await asyncio.sleep(2.0)
        bench.queue.update(spec(), [A, B])
        assert (await task).endpoint == B
        assert bench.load(A).prefill_tokens == 5e4  # its state is kept

    run(main, A)


def test_update_without_new_endpoints_dispatches_nothing(run):
    async def main(bench):
        bench.give_prompts(A, 5e4)
        task = await bench.start_reserving()
        before = len(bench.ejected_calls)
        bench.queue.update(spec(), [A])
        assert len(bench.ejected_calls) == before
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main, A)


def test_new_endpoint_inherits_the_throughput_of_the_others(run):
    async def main(bench):
        bench.queue.update(spec(), [A, B])
        assert bench.load(A).kind.model == MODEL
        assert bench.load(B).kind.model == MODEL == model_of(1000.0)
        bench.queue.update(spec(), [])  # the estimate outlives the endpoints
        bench.queue.update(spec(), [C])
        assert bench.load(C).kind.model == MODEL
        assert bench.load(C).kv_capacity_tokens >= 1 << 60

    run(main, A)


def test_update_changes_the_objective(run):
    async def main(bench):
        first = await bench.reserve(tokens=600.0)
        bench.queue.update(spec(ttft_s=2.0), [A])
        assert await bench.reserve(tokens=1_100.0) is not None
        first.release()

    run(main, A)


@pytest.mark.parametrize("when", ["before", "at once", "after"])
def test_slot_of_a_cancelled_request_is_released(run, when):
    """A slot that is granted while its request is cancelled is released too."""

    async def main(bench):
        first = await bench.reserve(tokens=900.0, kv_tokens=7.0)
        task = await bench.start_reserving(tokens=800.0)
        other = await bench.start_reserving(tokens=800.0)
        match when:
            case "before":
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                first.release()
            case "at once":
                task.cancel()
                first.release()
            case "after":
                first.release()
                task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await asyncio.sleep(0.001)
        assert other.done()  # before the next recheck
        reservation = await other
        assert (bench.load(A).prefill_tokens, bench.load(A).kv_tokens) == (800.0, 300.0)
        reservation.release()
        assert (bench.load(A).prefill_tokens, bench.load(A).kv_tokens) == (0.0, 0.0)
        assert bench.queue._grants == {}

    run(main, A)


def test_an_adapter_gets_a_slot_where_it_is_in_memory(run):
    async def main(bench):
        bench.copies = {B.pod: {"sql"}}
        bench.load(B).kv_tokens = 900
        reservation = await bench.reserve(adapter="sql")
        assert reservation.endpoint == B
        assert (await bench.reserve()).endpoint == A

    run(main, A, B)


def test_waiting_requests_get_a_slot_at_a_new_copy(run):
    async def main(bench):
        bench.copies = {A.pod: {"sql"}}
        bench.give_prompts(A, 5000)
        waiting = await bench.start_reserving(adapter="sql")
        assert not waiting.done()
        bench.copies[B.pod] = {"sql"}
        bench.queue.note_copies()
        assert (await waiting).endpoint == B

    run(main, A, B)


def test_requests_for_an_adapter_whose_last_copy_is_gone_are_released(run):
    async def main(bench):
        bench.copies = {A.pod: {"sql"}}
        bench.give_prompts(A, 5000)
        sql = await bench.start_reserving(adapter="sql")
        bench.copies = {}
        bench.queue.note_copies()
        assert await sql is None
        assert await bench.reserve(adapter="sql") is None
        assert (await bench.reserve()).endpoint == B

    run(main, A, B)


def test_an_ejected_copy_is_none_while_there_are_other_engines(run):
    async def main(bench):
        bench.copies, bench.ejected = {A.pod: {"sql"}}, {A.pod}
        assert await bench.reserve(adapter="sql") is None
        bench.ejected = {A.pod, B.pod}
        assert (await bench.reserve(adapter="sql")).endpoint == A

    run(main, A, B)
