"""Back-off before a container is restarted, as the kubelet does it."""

from dataclasses import dataclass, replace

FIRST_S, LAST_S = 10.0, 300.0
RESET_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Kubernetes' rule: no pause after the first end, then 10 s, doubled up to 5 minutes.

    The back-off is reset if the container ran for 10 minutes. next_s: the next pause.
    """

    next_s: float = 0.0

    def next_pause(self, ran_s: float) -> tuple[float, "Backoff"]:
        """Return the pause in seconds after a run of `ran_s` seconds, and the state for the next one."""
        pause_s = 0.0 if ran_s >= RESET_AFTER_S else self.next_s
        following = FIRST_S if pause_s == 0 else min(pause_s * 2, LAST_S)
        return pause_s, replace(self, next_s=following)
