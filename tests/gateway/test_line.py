"""The line of a side: who is sent where, and when, on a clock that only timers move."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from penstock.core.routing.admission import AdmissionSpec
from penstock.core.routing.engine_load import EngineLoad
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.routing.prefill_throughput import Pace
from penstock.core.spec.objectives import Objectives
from penstock.gateway.line import Full, Line
from penstock.gateway.lines import Lines
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.snapshot import Service, Snapshot

A, B, C = (Endpoint(f"default/{name}", f"10.0.0.1:{port}", "r1") for name, port in
           (("a", 1), ("b", 2), ("c", 3)))  # fmt: skip
# 1,000 tokens a second, as ten answers showed.
PACE = Pace(10_000.0, 10.0, 10.0)


class Bench:
    """A line whose engines all have the same pace. ejected: pods."""

    def __init__(self, spec, *engines, pace=PACE):
        self.loop = asyncio.get_running_loop()
        self.ejected = set()
        self.asked = []
        self.line = Line(spec, self._ejected, self.loop.time)
        self.line.follow(spec, engines)
        for load in self.line._loads.values():
            load.pace = pace
        self.began_s = self.loop.time()
        self.num_waits = 0

    def _ejected(self, endpoints, now):
        self.asked.append((list(endpoints), now))
        return self.ejected

    def load(self, engine) -> EngineLoad:
        return self.line._loads[engine.pod]

    @contextlib.contextmanager
    def waiting(self):
        self.num_waits += 1
        yield

    async def seat(self, tokens=100.0, kv_tokens=300.0, wait_s=10.0, came_s=None):
        came_s = self.loop.time() if came_s is None else came_s
        return await self.line.seat(came_s, tokens, kv_tokens, wait_s, self.waiting())

    async def asking(self, *more, **values):
        task = asyncio.create_task(self.seat(*more, **values))
        await asyncio.sleep(0.001)
        return task

    @property
    def took_s(self):
        return pytest.approx(self.loop.time() - self.began_s, abs=0.01)


def spec(ttft_s=1.0, max_queued=100):
    return AdmissionSpec("deadline", ttft_s, max_queued, 60.0)


@pytest.fixture
def run(run_virtually):
    """`run(main, engine, …, pace=…)` runs `main(bench)`."""

    def run(main, *engines, wanted=None, **more):
        async def on_loop():
            await main(Bench(wanted or spec(), *engines, **more))

        run_virtually(on_loop)

    return run


def test_whoever_may_go_does_not_wait(run):
    async def main(bench):
        seat = await bench.seat()
        assert seat.endpoint == A
        assert (bench.load(A).prefill_tokens, bench.load(A).kv_tokens) == (100.0, 300.0)
        assert (bench.num_waits, bench.took_s) == (0, 0.0)
        assert len(bench.line._admission) == 0
        assert bench.line._given == {}
        assert bench.line._timer is None

    run(main, A)


def test_the_engine_that_holds_least_is_given(run):
    async def main(bench):
        bench.load(A).kv_tokens, bench.load(B).kv_tokens, bench.load(C).kv_tokens = 500, 200, 300
        seats = [await bench.seat(tokens=1.0, kv_tokens=150.0) for _ in range(2)]
        assert [seat.endpoint for seat in seats] == [B, C]
        assert bench.load(B).kv_tokens == 350

    run(main, A, B, C)


def test_of_those_that_hold_as_much_any_is_given(run):
    async def main(bench):
        seen = set()
        for _ in range(60):
            seat = await bench.seat()
            seen.add(seat.endpoint)
            seat.left()
        assert seen == {A, B}

    run(main, A, B)


def test_engines_that_are_ejected_are_passed_over_if_there_are_others(run):
    async def main(bench):
        bench.ejected = {A.pod}
        for _ in range(20):
            seat = await bench.seat()
            assert seat.endpoint == B
            seat.left()
        assert bench.asked[-1] == ([A, B], bench.loop.time())
        bench.ejected = {A.pod, B.pod}
        assert await bench.seat() is not None

    run(main, A, B)


def test_a_prompt_waits_until_it_is_in_time(run):
    """900 tokens are in time with a tenth to spare; the second prompt waits for the first one's end."""

    async def main(bench):
        first = await bench.seat(tokens=600.0)
        second = await bench.asking(tokens=305.0)
        assert (await bench.asking(tokens=295.0)).done()
        assert not second.done()
        assert (await bench.asking(tokens=500.0, came_s=bench.loop.time() + 5.0)).done()
        await asyncio.sleep(0.5)
        bench.load(A).prefill_tokens -= 795.0  # of the other two
        first.began(bench.loop.time())
        assert await second is not None
        assert (bench.num_waits, bench.took_s) == (1, 0.5)

    run(main, A)


def test_who_is_late_goes_when_the_engine_is_done(run):
    async def main(bench):
        first = await bench.seat(tokens=900.0)
        late = await bench.asking(tokens=900.0)
        await asyncio.sleep(2.0)
        assert not late.done()
        first.left()
        assert (await late).endpoint == A
        assert bench.took_s == 2.0

    run(main, A)


def test_what_only_time_has_changed_is_looked_at_each_tenth_of_a_second(run):
    """An engine's ejection ends, and nobody tells the line so."""

    async def main(bench):
        bench.load(A).kv_tokens = bench.load(A).prefill_tokens = 1e6
        bench.ejected = {B.pod}
        task = await bench.asking()
        again = await bench.asking()
        await asyncio.sleep(0.02)
        bench.ejected = set()
        seats = [await task, await again]
        assert [seat.endpoint for seat in seats] == [B, B]
        assert bench.took_s == 0.1
        looks = len(bench.asked)
        await asyncio.sleep(1.0)
        assert len(bench.asked) == looks  # nobody waits
        assert bench.line._timer is None

    run(main, A, B)


def test_it_goes_on_looking_while_somebody_waits(run):
    async def main(bench):
        bench.load(A).prefill_tokens = 1e6
        task = await bench.asking()
        before = len(bench.asked)
        await asyncio.sleep(0.95)
        assert len(bench.asked) - before == 9
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main, A)


def test_who_has_waited_too_long(run):
    async def main(bench):
        bench.load(A).prefill_tokens = 7_500.0
        task = await bench.asking(tokens=900.0, wait_s=3.0)
        with pytest.raises(Full) as full:
            await task
        assert (str(full.value), full.value.retry_after_s) == ("no engine had room in time", 8)
        assert (bench.num_waits, bench.took_s) == (1, 3.0)
        assert len(bench.line._admission) == 0
        assert bench.line._given == {}

    run(main, A)


def test_only_so_many_stand_in_it(run):
    async def main(bench):
        bench.load(A).prefill_tokens = 20_000.0
        waiting = [await bench.asking(tokens=900.0) for _ in range(2)]
        with pytest.raises(Full) as full:
            await bench.seat()
        told = str(full.value), full.value.retry_after_s
        assert told == ("too many requests wait for an engine", 22)  # 21,800 tokens
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(bench.line._admission) == 0

    run(main, A, wanted=spec(max_queued=2))


def test_a_line_without_engines_sends_everybody_away(run):
    async def main(bench):
        bench.load(A).prefill_tokens = 1e6
        tasks = [await bench.asking() for _ in range(2)]
        bench.line.follow(spec(), [])
        assert [await task for task in tasks] == [None, None]
        bench.line.close()

    run(main, A)


def test_a_new_engine_takes_those_that_are_late_already(run):
    async def main(bench):
        bench.load(A).prefill_tokens = 1e6
        task = await bench.asking(tokens=900.0)
        await asyncio.sleep(2.0)
        bench.line.follow(spec(), [A, B])
        assert (await task).endpoint == B
        assert bench.load(A).prefill_tokens == 1e6  # it is the same engine

    run(main, A)


def test_engines_that_stay_are_no_news(run):
    async def main(bench):
        bench.load(A).prefill_tokens = 1e6
        task = await bench.asking()
        before = len(bench.asked)
        bench.line.follow(spec(), [A])
        assert len(bench.asked) == before
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main, A)


def test_a_new_engine_is_believed_to_be_as_fast_as_the_others(run):
    async def main(bench):
        bench.line.follow(spec(), [A, B])
        assert bench.load(A).pace == PACE
        assert bench.load(B).pace == PACE.faded() == Pace(1000.0, 1.0, 1.0)
        bench.line.follow(spec(), [])  # the belief outlives the engines
        bench.line.follow(spec(), [C])
        assert bench.load(C).pace == PACE.faded()
        assert bench.load(C).kv_capacity_tokens >= 1 << 60

    run(main, A)


def test_the_objective_is_followed(run):
    async def main(bench):
        first = await bench.seat(tokens=600.0)
        bench.line.follow(spec(ttft_s=2.0), [A])
        assert await bench.seat(tokens=1_100.0) is not None
        first.left()

    run(main, A)


@pytest.mark.parametrize("when", ["before", "at once", "after"])
def test_a_seat_of_somebody_who_leaves_is_given_back(run, when):
    """A slot that is granted while its request is cancelled is released too."""

    async def main(bench):
        first = await bench.seat(tokens=900.0, kv_tokens=7.0)
        task = await bench.asking(tokens=800.0)
        other = await bench.asking(tokens=800.0)
        match when:
            case "before":
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                first.left()
            case "at once":
                task.cancel()
                first.left()
            case "after":
                first.left()
                task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await asyncio.sleep(0.001)
        assert other.done()  # not only when it is looked again
        seat = await other
        assert (bench.load(A).prefill_tokens, bench.load(A).kv_tokens) == (800.0, 300.0)
        seat.left()
        assert (bench.load(A).prefill_tokens, bench.load(A).kv_tokens) == (0.0, 0.0)
        assert bench.line._given == {}

    run(main, A)


def of(weights, *endpoints, objectives=Objectives(1.5, 0.1), name="chat"):  # noqa: B008
    weights = {Side(revision): weight for revision, weight in weights.items()}
    return Service("default", name, name, 0, weights, endpoints, objectives)


KEY = "default/chat"
NEW = replace(B, revision="r2")
R1, R2, R3 = Side("r1"), Side("r2"), Side("r3")


@pytest.fixture
def lines(run_virtually):
    """`lines(main)` runs `main(lines)`."""

    def run(main):
        async def on_loop():
            settings = GatewaySettings(max_waiting=7, wait_for_endpoint_s=5.0)
            time = asyncio.get_running_loop().time
            await main(Lines(settings, lambda endpoints, now: set(), time))

        run_virtually(on_loop)

    return run


def test_each_side_with_weight_has_a_line_of_its_engines(lines):
    async def main(lines):
        service = of({"r1": 90, "r3": 0, "r2": 10}, A, NEW, C)
        other = of({"r1": 100}, name="other", objectives=None)
        third = of({"r1": 100}, B, name="third")
        lines.follow(Snapshot((other, service, third)))
        first, second = lines.get(KEY, R1), lines.get(KEY, R2)
        assert list(first._endpoints) == [A.pod, C.pod]
        assert list(second._endpoints) == [NEW.pod]
        assert lines.get(KEY, R3) is None
        assert lines.get("default/other", R1) is None
        assert list(lines.get("default/third", R1)._endpoints) == [B.pod]
        assert first._admission.spec == AdmissionSpec("deadline", 1.5, 7, 5.0)
        # Queues are kept while their sides have weight, with or without engines.
        lines.follow(Snapshot((of({"r1": 90, "r2": 10}, A, objectives=Objectives(2.0, 0.1)),)))
        assert (lines.get(KEY, R1), lines.get(KEY, R2)) == (first, second)
        assert list(second._endpoints) == []
        assert first._admission.spec.ttft_s == 2.0
        lines.follow(Snapshot((of({"r1": 90, "r2": 0}, A),)))
        assert (lines.get(KEY, R1), lines.get(KEY, R2)) == (first, None)
        lines.follow(Snapshot())
        assert lines.get(KEY, R1) is None

    lines(main)


@pytest.mark.parametrize(
    "after",
    [
        Snapshot(),
        Snapshot((of({"r1": 0}, A),)),
        Snapshot((of({"r1": 100}, A, objectives=None),)),
        Snapshot((of({"r1": 100}),)),
    ],
)
def test_a_line_that_is_gone_sends_everybody_away(lines, after):
    async def main(lines):
        lines.follow(Snapshot((of({"r1": 100}, A),)))
        line = lines.get(KEY, R1)
        line._loads[A.pod].pace, line._loads[A.pod].prefill_tokens = PACE, 1e6
        asking = line.seat(1000.0, 100.0, 300.0, 10.0, contextlib.nullcontext())
        task = asyncio.create_task(asking)
        await asyncio.sleep(0.01)
        lines.follow(after)
        assert await task is None

    lines(main)
