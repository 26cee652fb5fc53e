"""An event loop in virtual time."""

import asyncio
import selectors
from collections.abc import Callable


class JumpingSelector(selectors.SelectSelector):
    """A selector that never blocks: it passes the time that it would wait to `jump`."""

    jump: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events and timeout != 0:
            assert timeout is not None, "nothing would ever happen again"
            self.jump(timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time: when nothing is ready, the clock jumps to the next timer."""

    def __init__(self) -> None:
        selector = JumpingSelector()
        super().__init__(selector)
        self.now_s = 1000.0
        selector.jump = self._jump

    def time(self) -> float:
        return self.now_s

    def _jump(self, seconds: float) -> None:
        self.now_s += seconds
