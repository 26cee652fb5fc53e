"""Selection for retries: back-off, retry budget, wait limit, and endpoints that failed before."""

import asyncio

import pytest

from penstock.core.routing.charge import Ending
from penstock.core.routing.pick import Endpoint

A, B, C = (Endpoint(f"default/{name}", f"10.0.0.1:{port}", "r1") for name, port in
           (("a", 1), ("b", 2), ("c", 3)))  # fmt: skip
KEY = "default/chat"


def test_failed_endpoints_are_retried_with_exponential_backoff(bench):
    async def main(made, cancellation):
        made.publish(made.service(A))
        selector = made.selector(cancellation)
        waits_s, since_s = [], made.loop.time()
        assert (await selector.next([])).endpoint == A
        for _ in range(8):
            selector.note_failure(A, Ending.RESET, 1.0)
            assert (await selector.next([Ending.RESET])).endpoint == A
            waits_s.append(made.loop.time() - since_s)
            since_s = made.loop.time()
        selector.note_failure(A, Ending.RESET, 1.0)
        error = await made.error_of(selector.next([Ending.RESET]))
        assert error == (503, "every ready engine was tried", 5)
        assert waits_s == pytest.approx([0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0, 0.25])
        # Waiting counts against the wait limit; the time of an attempt that was reset does not.
        assert made.elapsed_s == 10.0
        assert made.state.waiting == 0

    bench(main)


def test_new_endpoint_ends_the_backoff(bench):
    async def main(made, cancellation):
        made.publish(made.service(A))
        selector = made.selector(cancellation)
        selector.note_failure(A, Ending.RESET, 0.0)
        selector._wait._backoff_s = 2.0
        task = asyncio.create_task(selector.next([Ending.RESET]))
        await asyncio.sleep(0.5)
        made.publish(made.service(A, B))
        assert (await task).endpoint == B
        assert made.elapsed_s == 0.5

    bench(main)


@pytest.mark.parametrize(("took_s", "is_selected"), [(12.0, True), (12.5, False)])
def test_failed_connections_count_against_the_wait_limit(bench, took_s, is_selected):
    """The last connection attempt may exceed the limit by its own timeout, here 2 s."""

    async def main(made, cancellation):
        made.publish(made.service(A, B))
        selector = made.selector(cancellation)
        selector.note_failure(A, Ending.CONNECT, took_s)
        if is_selected:
            assert (await selector.next([Ending.CONNECT])).endpoint == B
        else:
            error = await made.error_of(selector.next([Ending.CONNECT]))
            assert error == (503, "no connection to an engine could be made in time", 5)

    bench(main, connect_timeout_s=2.0)


def test_no_endpoint_is_tried_twice_after_an_error_response(bench):
    async def main(made, cancellation):
        made.publish(made.service(A, B))
        selector = made.selector(cancellation)
        selector.note_failure(A, Ending.ERROR, 0.0)
        assert (await selector.next([Ending.ERROR])).endpoint == B
        selector.note_failure(B, Ending.RESET, 0.0)
        error = await made.error_of(selector.next([Ending.ERROR, Ending.RESET]))
        assert error == (503, "every ready engine was tried", 5)
        assert made.elapsed_s == 0.0

    bench(main)


@pytest.mark.parametrize(("failure", "waits_s"), [(Ending.ERROR, 1.0), (Ending.RESET, 10.0)])
def test_wait_for_the_retry_budget_is_one_second_after_an_error_response(bench, failure, waits_s):
    async def main(made, cancellation):
        made.publish(made.service(A, B))
        selector = made.selector(cancellation)
        selector.note_failure(A, failure, 0.0)
        with made.state.retry_budget.hold(KEY):
            error = await made.error_of(selector.next([failure]))
        assert error == (503, "too many requests are being retried", 5)
        assert made.elapsed_s == waits_s

    bench(main, min_retries=1, retry_budget_fraction=0.0)


def test_retry_budget_is_checked_every_50_ms(bench):
    async def main(made, cancellation):
        made.publish(made.service(A, B))
        selector = made.selector(cancellation)
        selector.note_failure(A, Ending.RESET, 0.0)
        with made.state.retry_budget.hold(KEY):
            task = asyncio.create_task(selector.next([Ending.RESET]))
            await asyncio.sleep(0.12)
        assert (await task).endpoint == B
        assert made.elapsed_s == 0.15

    bench(main, min_retries=1, retry_budget_fraction=0.0)


def test_retry_budget_is_a_fraction_of_open_requests(bench):
    async def main(made, cancellation):
        made.publish(made.service(A, B))
        selector = made.selector(cancellation)
        selector.note_failure(A, Ending.RESET, 0.0)
        opened = made.state.open_requests
        with made.state.retry_budget.hold(KEY), opened.hold(KEY), opened.hold(KEY):
            with opened.hold(KEY), opened.hold(KEY):
                assert (await selector.next([Ending.RESET])).endpoint == B
            assert made.elapsed_s == 0.0
            assert (await selector.next([])).endpoint == B  # no retry: no budget
            await made.error_of(selector.next([Ending.RESET]))
            assert made.elapsed_s == 10.0

    bench(main, min_retries=1, retry_budget_fraction=0.5)


def test_retry_prefers_an_endpoint_without_failures(bench):
    async def main(made, cancellation):
        made.publish(made.service(A, B, C))
        endpoints = made.state.endpoints
        endpoints.note_failure(B.pod, made.loop.time(), is_unreachable=False)
        selector = made.selector(cancellation)
        selector.note_failure(A, Ending.RESET, 0.0)
        for _ in range(20):
            assert (await selector.next([Ending.RESET])).endpoint == C
        selector.note_failure(C, Ending.RESET, 0.0)
        assert (await selector.next([Ending.RESET])).endpoint == B  # the only one left
        fresh = made.selector(cancellation)
        selected = {(await fresh.next([])).endpoint for _ in range(60)}
        assert selected == {A, B, C}

    bench(main)


def test_ejected_endpoint_gets_one_probe_at_a_time(bench):
    async def main(made, cancellation):
        made.publish(made.service(A, B))
        for _ in range(3):
            made.state.endpoints.note_failure(A.pod, made.loop.time(), is_unreachable=False)
        (load,) = made.state.engines.of([B.pod])
        load.num_decoding = 9  # a request would cost less at A
        load.refresh()
        selected = await made.selector(cancellation).next([])
        assert selected.endpoint == B
        await asyncio.sleep(1.0)
        selected = [(await made.selector(cancellation).next([])).endpoint for _ in range(3)]
        assert selected == [A, B, B]

    bench(main)


@pytest.mark.parametrize(
    ("failed", "ejected"),
    [
        ({A: Ending.RESET}, {A}),  # one engine's fault
        ({A: Ending.RESET, B: Ending.RESET}, set()),
        ({A: Ending.ERROR, B: Ending.UNAVAILABLE}, set()),
        ({A: Ending.RESET, B: Ending.CONNECT}, {A, B}),  # B never got the request
    ],
)
def test_request_that_several_endpoints_fail_ejects_none(bench, failed, ejected):
    async def main(made, cancellation):
        made.publish(made.service(A, B, C))
        for engine in (A, B):
            for _ in range(2):
                made.state.endpoints.note_failure(
                    engine.pod, made.loop.time(), is_unreachable=False
                )
        selector = made.selector(cancellation)
        with selector.failed:
            for engine, failure in failed.items():
                selector.note_failure(engine, failure, 0.0)
        failing = {
            engine
            for engine in (A, B)
            if made.state.endpoints.ejected([engine], made.loop.time() + 0.5)
        }
        assert failing == ejected

    bench(main)


@pytest.mark.parametrize(
    ("failure", "is_answered", "suspects"),
    [
        (Ending.RESET, False, set()),
        (Ending.RESET, True, {A.pod}),
        (Ending.CONNECT, False, {A.pod}),  # whatever the request
    ],
)
def test_failure_that_the_retry_budget_allows_no_retry_of_counts_if_another_engine_answers(
    bench, failure, is_answered, suspects
):
    async def main(made, cancellation):
        made.publish(made.service(A, B))
        selector, endpoints = made.selector(cancellation), made.state.endpoints
        with selector.failed:
            with made.state.retry_budget.hold(KEY):
                selector.note_failure(A, failure, 0.0)
            assert endpoints.suspects == ({A.pod} if failure is Ending.CONNECT else set())
            if is_answered:
                selector.failed.confirm(made.loop.time())
        assert endpoints.suspects == suspects

    bench(main, min_retries=1, retry_budget_fraction=0.0)


def test_failure_counts_without_a_retry_budget_if_there_are_no_retries(bench):
    """With one attempt, only failed connections are tried again, and these need the budget."""

    async def main(made, cancellation):
        made.publish(made.service(A, B))
        selector = made.selector(cancellation)
        with made.state.retry_budget.hold(KEY), selector.failed:
            selector.note_failure(A, Ending.RESET, 0.0)
        assert made.state.endpoints.suspects == {A.pod}

    bench(main, max_attempts=1, min_retries=1, retry_budget_fraction=0.0)


@pytest.mark.parametrize(("is_answered", "ejected"), [(False, set()), (True, {A.pod})])
def test_request_that_is_cancelled_before_an_answer_ejects_none(bench, is_answered, ejected):
    async def main(made, cancellation):
        made.publish(made.service(A, B))
        endpoints, selector = made.state.endpoints, made.selector(cancellation)

        async def fail():
            with selector.failed:
                for _ in range(3):
                    selector.note_failure(A, Ending.RESET, 0.0)
                if is_answered:
                    selector.failed.confirm(made.loop.time())
                await asyncio.Event().wait()

        failing = asyncio.create_task(fail())
        await asyncio.sleep(0)
        failing.cancel()
        await asyncio.gather(failing, return_exceptions=True)
        assert endpoints.ejected([A, B], made.loop.time()) == ejected

    bench(main)


def test_all_unreachable_endpoints_are_ejected(bench):
    """At most half of the endpoints that accept connections are ejected."""

    async def main(made, cancellation):
        made.publish(made.service(A, B))
        selector = made.selector(cancellation)
        for failure, num_out in ((Ending.RESET, 1), (Ending.CONNECT, 2)):
            for _ in range(3):
                for engine in (A, B):
                    selector.note_failure(engine, failure, 0.0)
            assert len(made.state.endpoints.ejected([A, B], made.loop.time())) == num_out

    bench(main)
