"""Back-off before a container is restarted, as the kubelet does it."""

from dataclasses import dataclass

from penstock.core.backoff import backoff_s

FIRST_S, LAST_S = 10.0, 300.0
RESET_AFTER_S = 600.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Kubernetes' rule: no pause after the first end, then 10 s, doubled up to 5 minutes.

    The back-off is reset if the container ran for 10 minutes. num_ends: since the last reset.
    """

    num_ends: int = 0

    def next_pause(self, ran_s: float) -> tuple[float, "Backoff"]:
        """Return the pause in seconds after a run of `ran_s` seconds, and the state for the next one."""
        num_before = 0 if ran_s >= RESET_AFTER_S else self.num_ends
        pause_s = backoff_s(num_before - 1, FIRST_S, LAST_S) if num_before else 0.0
        return pause_s, Backoff(num_before + 1)
