"""Runs the parts of a fetch in several threads; the first error ends all of them."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from penstock_engine.sources.deadline import Deadline

Result = TypeVar("Result")


def run_parallel(calls: Iterable[Callable[[], Result]], deadline: Deadline) -> list[Result]:
    """Results of calls, in the order in which they end. Raises the first error, and cancels the deadline."""
    with ThreadPoolExecutor(deadline.limits.num_connections, "fetch") as pool:
        futures = [pool.submit(call) for call in calls]
        try:
            return [future.result() for future in as_completed(futures)]
        except BaseException:
            # The first error: other threads raise Cancelled only after this.
            deadline.cancel()
            pool.shutdown(cancel_futures=True)
            raise
