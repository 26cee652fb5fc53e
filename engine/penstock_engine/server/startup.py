"""Where the seconds of a start go."""

from collections.abc import Callable
from typing import Literal

Phase = Literal["import", "config", "weights", "warm_up", "listen"]


class StartUp:
    """Phases follow each other without a gap: each begins where the one before has ended."""

    def __init__(self, started_s: float, clock: Callable[[], float]) -> None:
        """started_s: when the process began, on `clock`."""
        self._started_s = started_s
        self._clock = clock
        self._last_s = started_s
        self.phases_s: dict[str, float] = {}

    def ended(self, phase: Phase) -> None:
        now_s = self._clock()
        self.phases_s[phase] = now_s - self._last_s
        self._last_s = now_s

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.phases_s.items())
        return f"{self._last_s - self._started_s:.2f} s ({phases})"
