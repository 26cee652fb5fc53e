"""Evidence of one block of time: the counts of the canary and of its control, and pod faults."""

from dataclasses import dataclass

from penstock.core.canary.arm import Arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Faults of the canary's pods: containers in CrashLoopBackOff, OOM kills, outputs with NaN logits."""

    crash_loops: int = 0
    out_of_memory: int = 0
    nan_outputs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Evidence of one block of time.

    length_s: 10 to 30. control: pods of the stable revision as old as the canary's if there are any, else
    all stable pods.
    """

    length_s: float
    canary: Arm
    control: Arm
    faults: Faults = Faults()


@dataclass(frozen=True, slots=True)
class History:
    """Baseline error counts of stable over at most an hour before the canary; only rare events need it."""

    requests: int = 0
    errors: int = 0

    @property
    def error_share(self) -> float:
        return self.errors / self.requests if self.requests else 0.0


NO_HISTORY = History()
