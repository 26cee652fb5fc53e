"""Endpoint selection: the engine to try next and the waiting time, on a clock that only timers move."""

import asyncio
from dataclasses import replace

import pytest

from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.retry import Failure
from penstock.core.spec.objectives import Objectives
from penstock.gateway.app import Gateway
from penstock.gateway.fleet import Fleet
from penstock.gateway.guard import Guard, Phase
from penstock.gateway.openai import Refused
from penstock.gateway.search import Search
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshot import Service, Snapshot
from penstock.gateway.upstream import Upstream

A, B, C = (Endpoint(f"default/{name}", f"10.0.0.1:{port}", "r1") for name, port in
           (("a", 1), ("b", 2), ("c", 3)))  # fmt: skip
KEY = "default/chat"


def service(*endpoints, weight=100, objectives=None):
    return Service(
        namespace="default",
        name="chat",
        served_name="chat",
        created_s=0,
        weights={Side("r1"): weight},
        endpoints=endpoints,
        objectives=objectives,
    )


class Bench:
    """A gateway without sockets, whose clock is that of the event loop."""

    def __init__(self, upstream, settings):
        self.loop = asyncio.get_running_loop()
        self.fleet = Fleet()
        self.shared = Gateway(self.fleet, upstream, settings, self.loop.time).shared
        self.began_s = self.loop.time()

    def show(self, *services):
        self.fleet.publish(Snapshot(services))

    def search(self, guard, key=None, tokens=100):
        came_s = self.loop.time()
        (current,) = self.fleet.snapshot.services
        ticket = self.shared.accounts.arrived(current, came_s, 400, is_stream=True, is_chat=True)
        return Search(self.shared, KEY, ticket, guard, key=key, tokens=tokens)

    @property
    def took_s(self):
        return pytest.approx(self.loop.time() - self.began_s)


@pytest.fixture
def bench(run_virtually):
    """`bench(main, setting=…)` runs `main(bench, guard)`."""

    def run(main, **settings):
        chosen = GatewaySettings(**{"wait_for_endpoint_s": 10.0} | settings)

        async def on_loop():
            async with Upstream(chosen) as upstream:
                made = Bench(upstream, chosen)
                with Guard(asyncio.Event().wait, 1800.0, made.shared.guards) as guard:
                    await main(made, guard)
            await made.shared.shadows.close()

        run_virtually(on_loop)

    return run


async def refusal(searching):
    with pytest.raises(Refused) as refused:
        await searching
    return refused.value.status, refused.value.message, refused.value.retry_after_s


def test_engines_that_failed_are_tried_again_after_pauses_that_grow(bench):
    async def main(made, guard):
        made.show(service(A))
        search = made.search(guard)
        waits_s, since_s = [], made.loop.time()
        assert (await search.next(is_retry=False)).endpoint == A
        for _ in range(8):
            search.failed(A.pod, Failure.RESET, 1.0)
            assert (await search.next(is_retry=True)).endpoint == A
            waits_s.append(made.loop.time() - since_s)
            since_s = made.loop.time()
        search.failed(A.pod, Failure.RESET, 1.0)
        told = await refusal(search.next(is_retry=True))
        assert told == (503, "every ready engine was tried", 5)
        assert waits_s == pytest.approx([0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0, 0.25])
        # Waiting counts against the wait limit; the time of an attempt that was reset does not.
        assert made.took_s == 10.0
        assert made.shared.waiting == 0

    bench(main)


def test_each_wait_is_counted(bench):
    async def main(made, guard):
        made.show(service(A))
        search = made.search(guard)
        metrics = made.shared.metrics
        for _ in range(3):
            search.failed(A.pod, Failure.RESET, 0.0)
            task = asyncio.create_task(search.next(is_retry=True))
            await asyncio.sleep(0.01)
            assert (made.shared.waiting, metrics.waiting.labels(KEY)._value.get()) == (1, 1)
            assert made.shared.accounts.of(KEY).queued
            await task
            assert (made.shared.waiting, metrics.waiting.labels(KEY)._value.get()) == (0, 0)
            assert not made.shared.accounts.of(KEY).queued
        assert metrics.wait_s.labels(KEY)._sum.get() == pytest.approx(0.25 + 0.5 + 1.0)

    bench(main)


def test_an_engine_that_appears_ends_the_pause(bench):
    async def main(made, guard):
        made.show(service(A))
        search = made.search(guard)
        search.failed(A.pod, Failure.RESET, 0.0)
        search._pause_s = 2.0
        task = asyncio.create_task(search.next(is_retry=True))
        await asyncio.sleep(0.5)
        made.show(service(A, B))
        assert (await task).endpoint == B
        assert made.took_s == 0.5

    bench(main)


def test_no_engine_in_time(bench):
    async def main(made, guard):
        made.show(service())
        told = await refusal(made.search(guard).next(is_retry=False))
        assert told == (503, "no engine is ready", 5)
        assert made.took_s == 10.0

    bench(main)


def test_the_first_engine_is_taken_when_it_comes(bench):
    async def main(made, guard):
        made.show(service())
        guard.phase = Phase.STREAMING
        task = asyncio.create_task(made.search(guard).next(is_retry=False))
        await asyncio.sleep(1.0)
        assert guard.phase is Phase.WAITING
        made.show(service(), replace(service(), name="other"))  # nothing for this one
        await asyncio.sleep(8.9)
        made.show(service(A))
        found = await task
        assert (found.endpoint, found.seat) == (A, None)

    bench(main)


def test_a_service_that_goes_away(bench):
    async def main(made, guard):
        made.show(service())
        task = asyncio.create_task(made.search(guard).next(is_retry=False))
        await asyncio.sleep(1.0)
        made.show()
        with pytest.raises(Refused) as refused:
            await task
        assert (refused.value.status, refused.value.code) == (404, "model_not_found")
        assert refused.value.message == "the model does not exist any more"

    bench(main)


@pytest.mark.parametrize(("took_s", "is_found"), [(12.0, True), (12.5, False)])
def test_connecting_in_vain_takes_from_the_patience(bench, took_s, is_found):
    """But for the last connection that was begun in time: it may take its own time-out of 2 s."""

    async def main(made, guard):
        made.show(service(A, B))
        search = made.search(guard)
        search.failed(A.pod, Failure.CONNECT, took_s)
        if is_found:
            assert (await search.next(is_retry=True)).endpoint == B
        else:
            told = await refusal(search.next(is_retry=True))
            assert told == (503, "no connection to an engine could be made in time", 5)

    bench(main, connect_timeout_s=2.0)


def test_after_an_error_no_engine_is_asked_twice(bench):
    async def main(made, guard):
        made.show(service(A, B))
        search = made.search(guard)
        search.failed(A.pod, Failure.ERROR, 0.0)
        assert (await search.next(is_retry=True)).endpoint == B
        search.failed(B.pod, Failure.RESET, 0.0)
        told = await refusal(search.next(is_retry=True))
        assert told == (503, "every ready engine was tried", 5)
        assert made.took_s == 0.0

    bench(main)


@pytest.mark.parametrize(("failure", "waits_s"), [(Failure.ERROR, 1.0), (Failure.RESET, 10.0)])
def test_whoever_was_told_an_error_waits_a_second_for_the_budget(bench, failure, waits_s):
    async def main(made, guard):
        made.show(service(A, B))
        search = made.search(guard)
        search.failed(A.pod, failure, 0.0)
        with made.shared.budget.hold(KEY):
            told = await refusal(search.next(is_retry=True))
        assert told == (503, "too many requests are tried again", 5)
        assert made.took_s == waits_s

    bench(main, min_retries=1, retry_budget_fraction=0.0)


def test_the_budget_is_looked_at_often(bench):
    async def main(made, guard):
        made.show(service(A, B))
        search = made.search(guard)
        search.failed(A.pod, Failure.RESET, 0.0)
        with made.shared.budget.hold(KEY):
            task = asyncio.create_task(search.next(is_retry=True))
            await asyncio.sleep(0.12)
        assert (await task).endpoint == B
        assert made.took_s == 0.15

    bench(main, min_retries=1, retry_budget_fraction=0.0)


def test_the_budget_is_a_share_of_what_is_open(bench):
    async def main(made, guard):
        made.show(service(A, B))
        search = made.search(guard)
        search.failed(A.pod, Failure.RESET, 0.0)
        opened = made.shared.open_requests
        with made.shared.budget.hold(KEY), opened.hold(KEY), opened.hold(KEY):
            with opened.hold(KEY), opened.hold(KEY):
                assert (await search.next(is_retry=True)).endpoint == B
            assert made.took_s == 0.0
            assert (await search.next(is_retry=False)).endpoint == B  # no retry: no budget
            await refusal(search.next(is_retry=True))
            assert made.took_s == 10.0

    bench(main, min_retries=0, retry_budget_fraction=0.5)


def test_a_retry_goes_to_an_engine_without_failures(bench):
    async def main(made, guard):
        made.show(service(A, B, C))
        loads = made.shared.loads
        loads.failed(B.pod, made.loop.time(), is_unreachable=False)
        search = made.search(guard)
        search.failed(A.pod, Failure.RESET, 0.0)
        for _ in range(20):
            assert (await search.next(is_retry=True)).endpoint == C
        search.failed(C.pod, Failure.RESET, 0.0)
        assert (await search.next(is_retry=True)).endpoint == B  # better than none
        fresh = made.search(guard)
        found = {(await fresh.next(is_retry=False)).endpoint for _ in range(60)}
        assert found == {A, B, C}

    bench(main)


def test_a_probe_of_an_ejected_engine_is_one(bench):
    async def main(made, guard):
        made.show(service(A, B))
        for _ in range(3):
            made.shared.loads.failed(A.pod, made.loop.time(), is_unreachable=False)
        made.shared.loads.tokens[B.pod] = 1000  # A would be the least loaded
        found = await made.search(guard).next(is_retry=False)
        assert found.endpoint == B
        await asyncio.sleep(1.0)
        found = [(await made.search(guard).next(is_retry=False)).endpoint for _ in range(3)]
        assert found == [A, B, B]

    bench(main)


@pytest.mark.parametrize(
    ("failed", "left"),
    [
        ({A: Failure.RESET}, {A}),  # one engine's fault
        ({A: Failure.RESET, B: Failure.RESET}, set()),
        ({A: Failure.ERROR, B: Failure.UNAVAILABLE}, set()),
        ({A: Failure.RESET, B: Failure.CONNECT}, {A, B}),  # nobody reached the second one
    ],
)
def test_what_several_engines_failed_at_ejects_none(bench, failed, left):
    async def main(made, guard):
        made.show(service(A, B, C))
        for engine in (A, B):
            for _ in range(2):
                made.shared.loads.failed(engine.pod, made.loop.time(), is_unreachable=False)
        search = made.search(guard)
        for engine, failure in failed.items():
            search.failed(engine.pod, failure, 0.0)
        search.gave_up()
        failing = {
            engine
            for engine in (A, B)
            if made.shared.loads.ejected([engine], made.loop.time() + 0.5)
        }
        assert failing == left

    bench(main)


def test_the_unreachable_are_marked_as_such(bench):
    """All of them are left out, where half may be of those that accept connections."""

    async def main(made, guard):
        made.show(service(A, B))
        search = made.search(guard)
        for failure, num_out in ((Failure.RESET, 1), (Failure.CONNECT, 2)):
            for _ in range(3):
                for engine in (A, B):
                    search.failed(engine.pod, failure, 0.0)
            assert len(made.shared.loads.ejected([A, B], made.loop.time())) == num_out

    bench(main)


def test_which_engines_serve(bench):
    async def main(made, guard):
        made.show(service(A))
        search = made.search(guard)
        assert search.serves(A.pod)
        assert not search.serves(B.pod)
        made.show(service(A, weight=0))
        assert not search.serves(A.pod)
        made.show(service(A, weight=1))
        assert search.serves(A.pod)
        made.show(replace(service(A), weights={}))
        assert not search.serves(A.pod)
        made.show()
        assert not search.serves(A.pod)

    bench(main)


def test_only_so_many_of_a_service_wait(bench):
    async def main(made, guard):
        made.show(service())
        waiting = made.shared.waiting_requests
        with waiting.hold("default/other"), waiting.hold(KEY):
            task = asyncio.create_task(made.search(guard).next(is_retry=False))
            await asyncio.sleep(0.1)
            assert made.shared.waiting == 3
            told = await refusal(made.search(guard).next(is_retry=False))
            assert told == (503, "too many requests wait for an engine", 5)
        made.show(service(A))
        await task

    bench(main, max_waiting=2)


def test_a_seat_in_the_line_of_a_service_with_objectives(bench):
    async def main(made, guard):
        made.show(service(A, objectives=Objectives(1.0, 0.1)))
        search = made.search(guard)
        found = await search.next(is_retry=False)
        assert found.endpoint == A
        seat = found.seat
        assert seat is not None
        # A second one has to wait until it is known how fast the engine is, or nothing is there.
        told = await refusal(made.search(guard).next(is_retry=False))
        assert told == (503, "no engine had room in time", 1)
        assert made.took_s == 10.0
        seat.left()
        # After a failed attempt it does not enter the admission queue again.
        made.show(service(A, B, objectives=Objectives(1.0, 0.1)))
        search.failed(A.pod, Failure.RESET, 0.0)
        found = await search.next(is_retry=True)
        assert (found.endpoint, found.seat) == (B, None)

    bench(main)


def test_a_seat_at_an_ejected_engine_is_its_probe(bench):
    async def main(made, guard):
        made.show(service(A, objectives=Objectives(1.0, 0.1)))
        for _ in range(3):
            made.shared.loads.failed(A.pod, made.loop.time())
        await asyncio.sleep(1.0)
        assert made.shared.loads.ejected([A], made.loop.time()) == set()
        found = await made.search(guard).next(is_retry=False)
        assert (found.endpoint, found.seat is None) == (A, False)
        assert made.shared.loads.ejected([A], made.loop.time()) == {A.pod}

    bench(main)


def test_a_line_that_is_closed_sends_on(bench):
    async def main(made, guard):
        objectives = Objectives(1.0, 0.1)
        made.show(service(A, objectives=objectives))
        first = await made.search(guard).next(is_retry=False)
        task = asyncio.create_task(made.search(guard).next(is_retry=False))
        await asyncio.sleep(1.0)
        other = replace(B, revision="r2")
        moved = replace(service(A, other, objectives=objectives), weights={Side("r2"): 100})
        made.show(moved)
        found = await task
        assert found.endpoint.pod == B.pod
        assert found.seat is not None
        assert first.seat is not None

    bench(main)
