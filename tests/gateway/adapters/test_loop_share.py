"""Shares of the event loop, on a loop and a processor whose times are computed."""

import asyncio

from penstock.clients.pods.loop_share import LoopShare


class Work:
    """Turns of which each takes 0.3 s of the processor. done: namespaces, with the times of their turns."""

    def __init__(self):
        self.now_s, self.cpu_s, self.done = asyncio.get_running_loop().time, 0.0, []
        self.share = LoopShare(0.1, 0.2, lambda: self.cpu_s)

    async def turn(self, namespace):
        async with self.share.turn(namespace):
            self.done.append((namespace, round(self.now_s(), 3)))
            self.cpu_s += 0.3


def test_turns_of_a_namespace_take_a_tenth_of_the_time_and_delay_no_other(run_virtually):
    async def main():
        work, start_s = Work(), asyncio.get_running_loop().time()
        await asyncio.gather(*(work.turn(each) for each in ("a", "a", "b", "a", "b")))
        expected = [("a", 0.0), ("b", 0.0), ("a", 5.0), ("b", 5.0), ("a", 10.0)]
        assert work.done == [(name, round(start_s + at_s, 3)) for name, at_s in expected]

    run_virtually(main)


def test_work_without_a_turn_delays_the_next_turn(run_virtually):
    async def main():
        work, start_s = Work(), asyncio.get_running_loop().time()
        with work.share.counted("a"):
            work.cpu_s += 1.0
        await work.turn("a")
        assert work.done == [("a", round(start_s + 10.0, 3))]

    run_virtually(main)


def test_a_cancelled_turn_is_left_to_the_next(run_virtually):
    async def main():
        work, start_s = Work(), asyncio.get_running_loop().time()
        _, second, third = (asyncio.create_task(work.turn("a")) for _ in range(3))
        await asyncio.sleep(1.0)
        second.cancel()
        await third
        assert work.done == [("a", round(start_s, 3)), ("a", round(start_s + 5.0, 3))]

    run_virtually(main)


def test_an_idle_namespace_takes_no_memory(run_virtually):
    async def main():
        work = Work()
        for number in range(10):
            await work.turn(f"a{number}")
            await asyncio.sleep(10.0)
        assert len(work.share._shares) == 1

    run_virtually(main)
