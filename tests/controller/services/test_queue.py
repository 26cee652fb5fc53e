"""The work queue: one run of a key at a time, one more if it changed, and back-off that a change ends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.clients.kubernetes.informer import Key
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.services import queue as queues
from penstock.controller.services.queue import WorkQueue
from penstock.controller.services.slots import SLOTS_PER_ROUTINE, Slots
from penstock.errors import Forbidden, Transient

KEY = ("default", "chat")


def work_queue(
    handle: Callable[[Key], Awaitable[float | None]], metrics: OperatorMetrics | None = None
) -> WorkQueue:
    metrics = metrics or OperatorMetrics()
    return WorkQueue(handle, Failures(metrics), metrics)


async def test_a_key_runs_once_at_a_time_and_once_more_if_it_changed() -> None:
    gate, again = asyncio.Event(), asyncio.Event()
    running = runs = 0

    async def handle(_: Key) -> None:
        nonlocal running, runs
        running += 1
        runs += 1
        assert running == 1
        await gate.wait()
        running -= 1
        if runs == 2:
            again.set()

    queue = work_queue(handle)
    queue.add(KEY)
    await asyncio.sleep(0)
    for _ in range(5):
        queue.add(KEY)
    gate.set()
    await again.wait()
    await asyncio.sleep(0.01)
    assert runs == 2


async def test_a_change_ends_the_back_off() -> None:
    failed, done = asyncio.Event(), asyncio.Event()

    async def handle(_: Key) -> None:
        if not failed.is_set():
            failed.set()
            raise Transient("not now", delay_s=3600)
        done.set()

    queue = work_queue(handle)
    queue.add(KEY)
    await failed.wait()
    while not done.is_set():
        queue.add(KEY)
        await asyncio.sleep(0.01)


async def test_an_error_is_retried_without_a_change() -> None:
    done, tries = asyncio.Event(), 0

    async def handle(_: Key) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Transient("not now", delay_s=0.01)
        done.set()

    work_queue(handle).add(KEY)
    await done.wait()
    assert tries == 3


async def test_an_unexpected_error_is_retried_and_counted() -> None:
    metrics, done, tries = OperatorMetrics(), asyncio.Event(), 0

    async def handle(_: Key) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise KeyError("reason")
        done.set()

    work_queue(handle, metrics).add(KEY)
    await done.wait()
    name = "penstock_operator_unexpected_errors_total"
    assert metrics.registry.get_sample_value(name, {"loop": "reconcile"}) == 1


async def test_errors_that_change_the_key_still_back_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message that differs each time, as with a request id, changes the status and so the key."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(queues.asyncio, "sleep", noted)
    enough = asyncio.Event()

    async def handle(key: Key) -> None:
        queue.add(key)
        if len(slept) == 8:
            enough.set()
        raise Forbidden("request 123")

    queue = work_queue(handle)
    queue.add(KEY)
    await enough.wait()
    assert slept[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


async def test_a_key_is_requeued_after_the_returned_delay_and_only_the_last_one_counts() -> None:
    waits = iter([60.0, 0.01, None])
    calls = 0

    async def handle(_: Key) -> float | None:
        nonlocal calls
        calls += 1
        return next(waits)

    queue = work_queue(handle)
    queue.add(KEY)
    await asyncio.sleep(0.05)
    assert calls == 1
    queue.add(KEY)
    await asyncio.sleep(0.2)
    assert calls == 3
    await asyncio.sleep(0.05)
    assert calls == 3


class Order:
    """A queue with one worker, which notes the keys in the order in which it handles them."""

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.may_begin, self.has_handled = asyncio.Event(), asyncio.Event()
        self.number = 0
        metrics = OperatorMetrics()
        self.queue = WorkQueue(self._handle, Failures(metrics), metrics, workers=1)
        self.queue.add(("n", "first"))

    async def _handle(self, key: Key) -> None:
        await self.may_begin.wait()
        self.handled.append(key[1])
        if len(self.handled) > self.number:
            self.has_handled.set()

    async def of(self, number: int) -> list[str]:
        """Let the worker begin, and return the keys after the first when it has handled so many."""
        await asyncio.sleep(0)
        self.number = number
        self.may_begin.set()
        async with asyncio.timeout(10):
            await self.has_handled.wait()
        return self.handled[1:]


async def test_a_changed_key_is_handled_before_those_that_are_only_checked() -> None:
    order = Order()
    await asyncio.sleep(0)
    for name in ("a", "b", "c"):
        order.queue.add_routine(("n", name))
    await asyncio.sleep(0)
    order.queue.add(("n", "changed"))
    await asyncio.sleep(0)
    order.queue.add(("n", "c"))  # it has changed while it waited
    order.queue.add_routine(("n", "changed"))
    assert await order.of(4) == ["changed", "c", "a", "b"]


async def test_changes_of_others_do_not_keep_a_key_from_being_checked() -> None:
    order = Order()
    await asyncio.sleep(0)
    order.queue.add_routine(("n", "routine"))
    names = [str(number) for number in range(2 * SLOTS_PER_ROUTINE)]
    for name in names:
        order.queue.add(("n", name))
    handled = await order.of(len(names) + 1)
    assert handled.index("routine") < SLOTS_PER_ROUTINE
    assert [name for name in handled if name != "routine"] == names


async def test_a_waiter_that_is_cancelled_takes_no_slot() -> None:
    slots, holds = Slots(1), asyncio.Event()

    async def hold(name: str) -> None:
        async with slots.hold(("n", name), is_urgent=True):
            holds.set()
            await asyncio.sleep(3600)

    first = asyncio.create_task(hold("first"))
    await holds.wait()
    cancelled = asyncio.create_task(hold("cancelled"))
    await asyncio.sleep(0)
    cancelled.cancel()
    first.cancel()  # its slot is granted while the other is being cancelled
    await asyncio.wait([first, cancelled])
    holds.clear()
    last = asyncio.create_task(hold("last"))
    async with asyncio.timeout(10):
        await holds.wait()
    last.cancel()
