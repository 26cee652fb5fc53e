"""How long to wait before a container is started again."""

from dataclasses import dataclass, replace

FIRST_S, LAST_S = 10.0, 300.0
RESET_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Kubernetes' rule: at once after the first end, then 10 s doubling to 5 minutes.

    A container that ran for 10 minutes starts over.
    """

    next_s: float = 0.0

    def after(self, ran_s: float) -> tuple[float, "Backoff"]:
        """The pause after a run of `ran_s` seconds, and the state for the next end."""
        pause_s = 0.0 if ran_s >= RESET_AFTER_S else self.next_s
        following = FIRST_S if pause_s == 0 else min(pause_s * 2, LAST_S)
        return pause_s, replace(self, next_s=following)
