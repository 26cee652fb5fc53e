"""GPU quota by kind, shared by all services."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.sim.profile import Profile


@dataclass(slots=True)
class Quota:
    """GPUs in use and their limits by kind; a kind without a limit is unlimited.

    waiting: callbacks for released GPUs.
    """

    limits: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def take(self, profile: Profile) -> bool:
        used = self.used.get(profile.gpu, 0) + profile.gpus
        if used > self.limits.get(profile.gpu, used):
            return False
        self.used[profile.gpu] = used
        return True

    def give_back(self, profile: Profile) -> None:
        self.used[profile.gpu] -= profile.gpus
        for schedule in self.waiting:
            schedule()
