"""Measures the phases of the engine's startup."""

from collections.abc import Callable
from typing import Literal

Phase = Literal["import", "config", "weights", "warm_up", "listen"]


class StartupTimer:
    """Durations of the startup phases. Each phase begins when the one before ends."""

    def __init__(self, started_s: float, clock: Callable[[], float]) -> None:
        """started_s: start of the process, in seconds on `clock`."""
        self._started_s = started_s
        self._clock = clock
        self._last_s = started_s
        self.phases_s: dict[str, float] = {}

    def end_phase(self, phase: Phase) -> None:
        """Records the time since the end of the phase before, in `phases_s`."""
        now_s = self._clock()
        self.phases_s[phase] = now_s - self._last_s
        self._last_s = now_s

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.phases_s.items())
        return f"{self._last_s - self._started_s:.2f} s ({phases})"
