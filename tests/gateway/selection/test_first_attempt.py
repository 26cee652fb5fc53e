"""Selection for the first attempt: the wait for an endpoint, and the admission queue."""

import asyncio
from dataclasses import replace

import pytest

from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.spec.objectives import Objectives
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.request_lifecycle.timeline import RequestPhase

A, B, C = (Endpoint(f"default/{name}", f"10.0.0.1:{port}", "r1") for name, port in
           (("a", 1), ("b", 2), ("c", 3)))  # fmt: skip
KEY = "default/chat"


def test_each_wait_is_counted_while_it_lasts(bench):
    async def main(made, cancellation):
        made.publish(made.service(A))
        selector = made.selector(cancellation)
        metrics = made.state.metrics
        for _ in range(3):
            selector.note_failure(A, Ending.RESET, 0.0)
            task = asyncio.create_task(selector.next([Ending.RESET]))
            await asyncio.sleep(0.01)
            assert (made.state.waiting, metrics.waiting.labels(KEY)._value.get()) == (1, 1)
            assert made.state.stats.get(KEY).queued
            await task
            assert (made.state.waiting, metrics.waiting.labels(KEY)._value.get()) == (0, 0)
            assert not made.state.stats.get(KEY).queued
        assert metrics.wait_s.labels(KEY)._sum.get() == pytest.approx(0.25 + 0.5 + 1.0)

    bench(main)


def test_no_endpoint_within_the_wait_limit_is_a_503(bench):
    async def main(made, cancellation):
        made.publish(made.service())
        error = await made.error_of(made.selector(cancellation).next([]))
        assert error == (503, "no engine is ready", 5)
        assert made.elapsed_s == 10.0

    bench(main)


def test_waiting_request_takes_the_first_endpoint_that_appears(bench):
    async def main(made, cancellation):
        made.publish(made.service())
        cancellation.phase = RequestPhase.STREAM
        task = asyncio.create_task(made.selector(cancellation).next([]))
        await asyncio.sleep(1.0)
        assert cancellation.phase is RequestPhase.WAIT
        made.publish(
            made.service(), replace(made.service(), name="other")
        )  # a change of another service
        await asyncio.sleep(8.9)
        made.publish(made.service(A))
        selected = await task
        assert selected.endpoint == A

    bench(main)


def test_deleted_service_ends_the_wait_with_a_404(bench):
    async def main(made, cancellation):
        made.publish(made.service())
        task = asyncio.create_task(made.selector(cancellation).next([]))
        await asyncio.sleep(1.0)
        made.publish()
        with pytest.raises(RequestError) as refused:
            await task
        assert (refused.value.status, refused.value.code) == (404, "model_not_found")
        assert refused.value.message == "the model `chat` does not exist"

    bench(main)


def test_is_serving(bench):
    async def main(made, cancellation):
        made.publish(made.service(A))
        selector = made.selector(cancellation)
        assert selector.is_serving(A.pod)
        assert not selector.is_serving(B.pod)
        made.publish(made.service(A, weight=0))
        assert not selector.is_serving(A.pod)
        made.publish(made.service(A, weight=1))
        assert selector.is_serving(A.pod)
        made.publish(replace(made.service(A), weights={}))
        assert not selector.is_serving(A.pod)
        made.publish()
        assert not selector.is_serving(A.pod)

    bench(main)


def test_number_of_waiting_requests_per_service_is_bounded(bench):
    async def main(made, cancellation):
        made.publish(made.service())
        waiting = made.state.waiting_requests
        with waiting.hold("default/other"), waiting.hold(KEY):
            task = asyncio.create_task(made.selector(cancellation).next([]))
            await asyncio.sleep(0.1)
            assert made.state.waiting == 3
            error = await made.error_of(made.selector(cancellation).next([]))
            assert error == (503, "too many requests wait for an engine", 5)
        made.publish(made.service(A))
        await task

    bench(main, max_waiting=2)


def test_first_attempt_reserves_a_slot_if_the_service_has_objectives(bench):
    async def main(made, cancellation):
        made.publish(made.service(A, objectives=Objectives(1.0, 0.1)))
        selector = made.selector(cancellation)
        selected = await selector.next([])
        assert selected.endpoint == A
        reservation = selected.reservation
        # The next one waits: an engine of unknown throughput gets one prompt at a time.
        error = await made.error_of(made.selector(cancellation).next([]))
        assert error == (503, "no engine had room in time", 1)
        assert made.elapsed_s == 10.0
        reservation.release()
        # A retry does not enter the admission queue again.
        made.publish(made.service(A, B, objectives=Objectives(1.0, 0.1)))
        selector.note_failure(A, Ending.RESET, 0.0)
        selected = await selector.next([Ending.RESET])
        assert selected.endpoint == B

    bench(main)


def test_reservation_at_an_ejected_endpoint_is_its_probe(bench):
    async def main(made, cancellation):
        made.publish(made.service(A, objectives=Objectives(1.0, 0.1)))
        for _ in range(3):
            made.state.endpoints.note_failure(A.pod, made.loop.time())
        await asyncio.sleep(1.0)
        assert made.state.endpoints.ejected([A], made.loop.time()) == set()
        selected = await made.selector(cancellation).next([])
        assert selected.endpoint == A
        assert made.state.endpoints.ejected([A], made.loop.time()) == {A.pod}

    bench(main)


def test_closed_queue_makes_the_request_select_another_side(bench):
    async def main(made, cancellation):
        objectives = Objectives(1.0, 0.1)
        made.publish(made.service(A, objectives=objectives))
        await made.selector(cancellation).next([])
        task = asyncio.create_task(made.selector(cancellation).next([]))
        await asyncio.sleep(1.0)
        other = replace(B, revision="r2")
        moved = replace(made.service(A, other, objectives=objectives), weights={Side("r2"): 100})
        made.publish(moved)
        selected = await task
        assert selected.endpoint.pod == B.pod

    bench(main)
