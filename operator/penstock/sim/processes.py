"""Runs simulations in several processes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")


def map_in_processes(
    function: Callable[[Work], Result], work: Sequence[Work], jobs: int
) -> list[Result]:
    """Results in the order of the work; in this process if one job or one piece of work is enough."""
    if jobs == 1 or len(work) == 1:
        return [function(each) for each in work]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        return list(pool.map(function, work))
