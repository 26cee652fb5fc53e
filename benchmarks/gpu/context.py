"""The context that a step is given, and the items that it consists of."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]


class LeftOut(Exception):
    """Raised by an item that cannot be run in the time that is left, or on this machine; no failure."""


@dataclass(frozen=True, slots=True)
class Item:
    """Check or measurement of a step. run: returns figures; `ok` is False if a check failed.

    Items of a step are run in order. After a crash the step is started again, and the items before
    are not run: so an item must not depend on the result of another.
    """

    name: str
    run: Callable[[], Record]


@dataclass(frozen=True, slots=True)
class Context:
    """The circumstances of a step. machine: the figures of the step `machine`, by their names.

    device: cuda, or cpu for the interpreter with small shapes. ends_s: time by `now` at which the step
    should have ended; no item is started after it.
    """

    device: str
    seed: int
    ends_s: float
    machine: Mapping[str, Any] = field(default_factory=dict)
    now: Callable[[], float] = time.monotonic

    @property
    def is_small(self) -> bool:
        """Whether shapes have to be small, because the interpreter runs the kernels."""
        return self.device == "cpu"

    def time_left_s(self) -> float:
        return self.ends_s - self.now()
