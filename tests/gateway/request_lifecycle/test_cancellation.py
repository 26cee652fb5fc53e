"""Cancellation scopes: time limits, disconnects and shutdown (virtual time)."""

import asyncio

import pytest

from penstock.gateway.request_lifecycle.cancellation import (
    CancelCause,
    CancellationScope,
    RequestCancelled,
)
from penstock.gateway.request_lifecycle.timeline import RequestPhase


async def never():
    await asyncio.Event().wait()


async def interrupted_after(run_in_scope, receive=never, total_s=10.0):
    """Run `run_in_scope(cancellation)` and hang. Returns (cause, phase, seconds) of the cancellation."""
    loop, registry = asyncio.get_running_loop(), set()
    started_s = loop.time()

    async def scoped():
        with CancellationScope(receive, total_s, registry) as cancellation:
            assert registry == {cancellation}
            assert cancellation.phase is RequestPhase.WAIT
            await run_in_scope(cancellation)
            await asyncio.sleep(1000)

    with pytest.raises(RequestCancelled) as end:
        await scoped()
    assert registry == set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    elapsed_s = pytest.approx(loop.time() - started_s)
    if end.value.cause is CancelCause.TIMEOUT:
        assert end.value.is_total == (elapsed_s == total_s)
    return end.value.cause, end.value.phase, elapsed_s


def uses(*steps):
    """Each step: wait, then enter a phase with a limit in seconds; None: lift the limit."""

    async def run_in_scope(cancellation):
        for after_s, phase, seconds in steps:
            await asyncio.sleep(after_s)
            if phase is None:
                cancellation.lift_phase_limit()
            else:
                cancellation.enter_phase(phase, seconds)

    return run_in_scope


FIRST, STREAM = RequestPhase.FIRST_BYTE, RequestPhase.STREAM


@pytest.mark.parametrize(
    ("steps", "phase", "after_s"),
    [
        ([(0, FIRST, 3)], FIRST, 3),
        ([(0, FIRST, 100)], FIRST, 10),  # all of it has its time too
        ([(2, FIRST, 9)], FIRST, 10),
        ([(0, FIRST, 3), (2, STREAM, 3)], STREAM, 5),  # the timer of 3 s looks again
        ([(0, FIRST, 3), (2, STREAM, 3), (2, STREAM, 3)], STREAM, 7),
        ([(0, FIRST, 8), (0, STREAM, 1)], STREAM, 1),  # an earlier end
        ([(0, FIRST, 3), (2, None, 0)], FIRST, 10),
        ([(0, FIRST, 3), (2, None, 0), (3, STREAM, 1)], STREAM, 6),
    ],
)
def test_time_limits(run_virtually, steps, phase, after_s):
    async def main():
        assert await interrupted_after(uses(*steps)) == (CancelCause.TIMEOUT, phase, after_s)

    run_virtually(main)


def test_client_that_disconnects(run_virtually):
    messages = [{"type": "http.request"}, {"type": "http.request"}, {"type": "http.disconnect"}]

    async def receive():
        await asyncio.sleep(1)
        return messages.pop(0)

    async def main():
        ended = await interrupted_after(uses((0, FIRST, 9)), receive)
        assert ended == (CancelCause.CLIENT_LEFT, FIRST, 3)
        assert messages == []

    run_virtually(main)


def test_first_cause_counts(run_virtually):
    async def run_in_scope(cancellation):
        cancellation.cancel(CancelCause.SHUTDOWN)
        cancellation.cancel(CancelCause.TIMEOUT)

    async def main():
        assert await interrupted_after(run_in_scope) == (CancelCause.SHUTDOWN, RequestPhase.WAIT, 0)

    run_virtually(main)


def test_closed_scope_cancels_nothing(run_virtually):
    async def receive():
        await asyncio.sleep(2)
        return {"type": "http.disconnect"}

    async def main():
        registry: set[CancellationScope] = set()
        with CancellationScope(receive, 10.0, registry) as cancellation:
            cancellation.enter_phase(FIRST, 1)
            cancellation.close()
            assert registry == set()
            await asyncio.sleep(100)
        with CancellationScope(never, 10.0, registry) as cancellation:  # nor after its block
            cancellation.enter_phase(FIRST, 1)
        await asyncio.sleep(100)

    run_virtually(main)


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_other_errors_pass_through(run_virtually, error):
    async def scoped(registry):
        with CancellationScope(never, 10.0, registry):
            raise error

    async def main():
        registry: set[CancellationScope] = set()
        with pytest.raises(error):
            await scoped(registry)
        assert registry == set()

    run_virtually(main)


def test_error_in_a_cancelled_block_is_not_hidden(run_virtually):
    async def scoped():
        with CancellationScope(never, 10.0, set()) as cancellation:
            cancellation.cancel(CancelCause.SHUTDOWN)
            raise ZeroDivisionError

    async def main():
        with pytest.raises(ZeroDivisionError):
            await scoped()
        with pytest.raises(asyncio.CancelledError):  # of the interruption, which nobody took back
            await asyncio.sleep(0)

    run_virtually(main)


def test_text_of_the_exception():
    end = RequestCancelled(CancelCause.TIMEOUT, RequestPhase.FIRST_BYTE)
    assert str(end) == "timeout while first_byte"
    assert not end.is_total
